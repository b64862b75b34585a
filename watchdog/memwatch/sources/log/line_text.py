"""A line of a log as its program printed it: without terminal escapes, and without what others put before it."""

from __future__ import annotations

import re

from memwatch.core.text_and_units import TERMINAL_ESCAPE
from memwatch.sources.log.unit_mentions import unit_from_name

_NOISE = re.compile(TERMINAL_ESCAPE.pattern + "|[\x00-\x08\x0e-\x1f\x7f]+")
_HAS_NOISE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
# {"log":"Epoch 1/10\n","stream":"stdout","time":"2026-11-21T03:52:47.123456789Z"}   (Kaggle: "data", after the stream)
_DOCKER = re.compile(
    r'[\[,]?\{(?:"\w{1,20}":[^,{}]{1,60},){0,6}"(?:log|data)":\s?"(?P<text>(?:[^"\\]+|\\.)*?)(?:\\r)?(?:\\n)?(?:","|"\}|\\?$)'
)
_JSON_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<char>.))")
_JSON_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

_WEEKDAY = "(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DATE = r"\d{4}[-/.]\d\d[-/.]\d\d"
_IN_WORDS = rf"{_WEEKDAY}(?:{_MONTH} [ \d]\d|\d{{1,2}}[ -]{_MONTH}[ -]\d{{4}})"
_DAY = rf"(?:{_DATE}|\d\d[-/.]\d\d[-/.]\d{{2,4}}|\d\d[/-]\d\d|{_IN_WORDS})"
_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,:]\d{1,9})?(?: ?(?:Z|UTC|[AP]M|[+-]\d\d:?\d\d))?(?: \d{4})?"
_STAMP = rf"(?:{_DAY}[T ,_-]{{1,2}}{_CLOCK}|{_DATE}(?=[ \]])|{_CLOCK})"
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|NOTICE|TRACE|SUCCESS)"
# What stands before the text of each line, and says which process wrote it where there are several.
_ENVELOPE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] "  # containerd, CRI-O
    r"|(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.+-]{8,22}) [\w.-]{1,64} "
    r"[\w./@-]{1,64}\[\d{1,8}\]: "  # journald, syslog
    r"|\[pod/[\w./-]{1,200}\] |[\w.-]{1,60}[-_]\d{1,4} {1,30}\| "  # kubectl logs --prefix, docker compose
    r"|(?P<process>\[[A-Za-z_-]{2,20}[ _:]?\d{1,5}\]: ?"  # [rank0]: of PyTorch, [default0]: of torchrun --tee
    r"|\[(?:rank|RANK|Rank|gpu|GPU|worker|Worker|proc|process)[ _:=#]?\d{1,5}\] "
    r"|\[\d{1,5}(?:,[\w:,-]{1,40})?\]<std(?:out|err)>: ?"  # mpirun --tag-output, horovodrun, SageMaker
    r"|\A {0,4}\d{1,5}: "  # srun --label
    r"|\((?:[\w.:<>/,= -]{1,80} )?pid=\d{1,8}(?:, ip=[\w.:]{1,45})?\) "  # Ray, SkyPilot
    r"|(?:worker|node|host|rank|gpu)[\w.-]{0,30}: )"  # pdsh
)
_BEFORE_TEXT = re.compile(
    r"(?:"
    rf"[DIWEF]\d{{4,8}} {_CLOCK} +\d{{1,8}} [\w./-]{{1,60}}:\d{{1,6}}\]"  # absl, glog
    rf"|\[{_LEVEL}\|[\w./-]{{1,60}}:\d{{1,6}}\]"  # transformers
    r"|[\w./-]{1,60}\.py ?\[line:\d{1,6}\]"  # logging's %(filename)s[line:%(lineno)d]
    rf"|\[{_DAY} {_CLOCK} [\w.]{{1,60}}\]:"  # detectron2
    rf"|\[{_STAMP}\]|\({_STAMP}\)|{_STAMP}"
    rf"|\[{_LEVEL}\s{{0,4}}\]|<{_LEVEL}>| {{0,40}}{_LEVEL}(?![\w=.])"
    r"|(?P<logger>\[(?!(?i:saved?|ckpt|checkpoint)\])[A-Za-z_][\w.:-]{0,80}\]|\([A-Za-z_][\w.]{0,60}:\d{1,6}\)"
    r"|[A-Za-z_][\w.]{0,80}:[\w<>]{1,60}:\d{1,6}(?= - )"  # loguru's module:function:line
    r"|(?<=:)[A-Za-z_][\w.]{0,80}(?=:)|[A-Za-z_][\w.]{0,80}(?= (?:-|\||::?) )|[A-Za-z_]\w{0,60}(?:\.\w{1,60})+(?=: ))"
    r")(?:\s{0,9}(?:-|\|(?![^|]*\|[^|]*\|(?:\s*|\s{2,200}\S{1,60}:\d+\s*)$)|>>|::?)\s{1,9}|:|\s{1,12}|(?=\[)|$)"
)
_AFTER_TEXT = re.compile(r"\s{2,200}[\w./-]{1,60}\.py:\d{1,6}\s{0,200}$")  # rich, at the end of its column
_DRAWING_ENDS = re.compile(r"\r|(?<=[0-9]s/step)(?=[A-Z])|(?<=[0-9][mu]s/step)(?=[A-Z])")  # Keras' bars end so
_MAX_PARTS = 8  # of what stands before the text: container, process, time, level, name, in any order


class LineText:
    """Text of a segment without terminal escapes, which knows the byte offset of each of its characters.

    The text of a line in a container's log is the program's; `process` is what says which of several processes wrote
    it, or is empty.
    """

    __slots__ = ("_byte", "_escaped", "_line", "_noisy", "_start", "_whole", "lower", "number", "process", "t", "text")

    def __init__(self, raw: bytes, byte: int, number: int, t: float) -> None:
        text = raw.decode("utf-8", "surrogateescape")
        self._byte, self._start, self._escaped = byte, 0, False
        if ('"log":' in text or '"data":' in text) and (docker := _DOCKER.match(text)):
            self._byte, self._escaped, text = byte + docker.start("text"), True, docker["text"]
        self._whole = text
        if self._escaped:
            text = _JSON_ESCAPE.sub(_unescaped, text)
        self._noisy = text if _HAS_NOISE.search(text) is not None else ""
        if self._noisy:
            text = _NOISE.sub("", text)
        self.number, self.t, self.process = number, t, ""
        self.text, self.lower = text, _lower(text)
        self._line: LineText | None = None

    def part(self, start: int, end: int | None = None) -> LineText:
        """Return the characters from `start` to `end`, with their byte offsets."""
        part: LineText = object.__new__(LineText)
        part._byte, part._whole, part._noisy, part._start = self._byte, self._whole, self._noisy, self._start + start
        part._escaped, part.process, part._line = self._escaped, self.process, None
        part.number, part.t = self.number, self.t
        part.text = self.text[start:end]
        part.lower = self.lower[start:end]
        return part

    def drawings(self) -> list[LineText]:
        r"""Return the parts between the \r of a container's line, and what is glued to a bar: `27ms/stepIter: 10`."""
        if "\r" not in self.text and "s/step" not in self.text:
            return [self]
        parts, begun = list[LineText](), 0
        for end in _DRAWING_ENDS.finditer(self.text):
            parts.append(self.part(begun, end.start()))
            begun = end.end()
        return [*parts, self.part(begun)]

    def message(self) -> LineText:
        """Return the text that the program logged, without what its launcher and its logger put before it."""
        start, process, logger = 0, "", ""
        for _ in range(_MAX_PARTS):
            at = start or len(self.text) - len(self.text.lstrip(" "))
            part = _ENVELOPE.match(self.text, at) or _BEFORE_TEXT.match(self.text, at)
            named = part.groupdict() if part else {}
            name = named.get("logger") or ""
            if part is None or not start < part.end() < len(self.text) or (start == 0 and name):
                break
            if name[:1].isalpha() and logger:  # `INFO:__main__:Epoch: 3`: the second name is the program's word
                break
            if name and unit_from_name(name.strip("[]")) is not None:  # `[2026-11-21 03:52:47] - epoch : 1/20`
                break
            start, process, logger = part.end(), process or (named.get("process") or "").strip(), logger or name
        if start == 0:
            return self
        after = _AFTER_TEXT.search(self.text, start) if ".py:" in self.text else None
        message = self.part(start, after.start() if after else None)
        message.process, message._line = process, self
        return message

    @property
    def is_below_another(self) -> bool:
        """The cursor goes up after it: tqdm's bar of an inner loop, below that of the outer one."""
        return "\x1b[A" in self._noisy

    @property
    def line(self) -> LineText:
        """The line of which this is the message, or this text itself."""
        return self._line or self

    @property
    def offset(self) -> int:
        """Characters of the whole line before this text."""
        return self._start - self.line._start

    def byte_of(self, position: int) -> int:
        """The offset in the log of the character at `position`."""
        position += self._start
        if self._noisy:
            for noise in _NOISE.finditer(self._noisy):
                if noise.start() > position:
                    break
                position += noise.end() - noise.start()
        if self._escaped:
            for escape in _JSON_ESCAPE.finditer(self._whole):
                if escape.start() >= position:
                    break
                position += escape.end() - escape.start() - 1
        return self._byte + len(self._whole[:position].encode("utf-8", "surrogateescape"))


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape["code"], 16)) if escape["code"] else _JSON_CHARACTERS.get(escape["char"], escape["char"])


def _lower(text: str) -> str:
    """Lower-case `text` without changing its length: a few characters become two."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
