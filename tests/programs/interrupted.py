"""Reacts to SIGINT in the way that its argument names, and prints a line once it is at work."""

import signal
import sys
import threading
import time


def work():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)


def save_on_signal(*_):
    pass


class Trainer:
    def stop(self, *_):
        pass


def handler():
    signal.signal(signal.SIGINT, save_on_signal)
    work()


def method():
    signal.signal(signal.SIGINT, Trainer().stop)
    work()


def term():
    signal.signal(signal.SIGTERM, save_on_signal)
    work()


def nothing():
    work()


def caught():
    try:
        work()
    except (KeyboardInterrupt, SystemExit):
        print("saved")


def bare():
    try:
        work()
    except:  # noqa: E722
        print("saved")


def finally_saves():
    def save_checkpoint():
        pass

    try:
        work()
    finally:
        save_checkpoint()


def passed_on():
    try:
        work()
    except KeyboardInterrupt:
        raise
    except BaseException:
        print("failed")
        raise
    finally:
        print("ended")


def elsewhere():
    try:
        print("not here")
    except KeyboardInterrupt:
        print("saved")
    work()


def thread():
    worker = threading.Thread(target=caught)
    worker.start()
    worker.join()


signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may have been started with SIGINT ignored
globals()[sys.argv[1]]()
