"""Each program's words for memory that ran out, and whose memory it was."""

# ruff: noqa: E501 - lines as long as the programs print them

from __future__ import annotations

import pytest

from memwatch.core.cause_of_death import cause_in_log
from memwatch.core.events import OutOfMemorySeen
from memwatch.sources.log.marker_parser import MarkerFinder
from support.presets import packaged_presets

LINES = {
    "memory_error": (
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 1717986918400 bytes.",
        "MemoryError",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 1.20 GiB for an array with shape (4, 40000000)",
        "pyarrow.lib.ArrowMemoryError: realloc of size 8589934592 failed",
        "_duckdb.OutOfMemoryException: Out of Memory Error: failed to allocate data of size 16.0 MiB (3.7 GiB/3.7 GiB used)",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
        "to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)",
        "  what():  std::bad_alloc",
        "OSError: [Errno 12] Cannot allocate memory",
        "memory allocation of 34359738368 bytes failed",
        "fatal error: runtime: out of memory",
        "ERROR: LoadError: OutOfMemoryError()",
        "Error: cannot allocate vector of size 7.5 Gb",
        "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        "ResourceExhaustedError: OOM when allocating tensor with shape[8192,8192] on /job:localhost/device:CPU:0 by allocator",
        'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
        "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.",
        "  Cholmod error 'out of memory' at file ../Core/cholmod_memory.c, line 147",
        "GurobiError: Error 10001: Out of memory",
        "libgomp: Out of memory allocating 1234 bytes",
        "error: out of memory or dimension too large for Octave's index type",
        "Error: vector memory exhausted (limit reached?)",
        "# There is insufficient memory for the Java Runtime Environment to continue.",
        "error: (-4:Insufficient memory) Failed to allocate 6220800 bytes in function 'OutOfMemoryError'",
        "$ Torch: not enough memory: you tried to allocate 12GB. Buy new RAM! at /aten/src/TH/THGeneral.cpp:204",
        "PANIC: unprotected error in call to Lua API (not enough memory)",
        "luajit: not enough memory",
        "forrtl: severe (41): insufficient virtual memory",
        "OSError: [WinError 1455] The paging file is too small for this operation to complete.",
    ),
    "cuda_oom": (
        "NCudaLib::TOutOfMemoryError: Error: Out of memory. Requested 11000.0; Free 10240",
        "[TensorRT] ERROR: Requested amount of GPU memory (1073741824 bytes) could not be allocated.",
        "RuntimeError: out of memory at /torch/lib/THC/generic/THCStorage.cu:58",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
        "RuntimeError: CUDA error: out of memory",
        "Out of memory on device. To view more detail about available memory on the GPU, use 'gpuDevice()'.",
        "ERROR: Out of GPU memory trying to allocate 256.000 KiB",
        "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCCachingHostAllocator.cpp:278",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 512 bytes).",
        "torch.distributed.DistBackendError: NCCL error: unhandled cuda error, Last error: Cuda failure 2 'out of memory'",
        "xgboost.core.XGBoostError: Memory allocation error on worker 0: bad_alloc: cudaErrorMemoryAllocation: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /rmm/cuda_memory_resource.hpp:69",
        "ResourceExhaustedError: OOM when allocating tensor with shape[32,512,1024] on /job:localhost/device:GPU:0 by allocator",
        "Out of memory error on GPU 0. Cannot allocate 2.000000GB memory on GPU 0, 15.5GB memory has been allocated",
        "failed to allocate 15.75G (16914055168 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 0: cudaMalloc failed: out of memory",
        "model.Error: src/storage/pooled_storage_manager.h:108: cudaMalloc failed: out of memory",
        "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'",
        "  what():  std::bad_alloc: out of memory",
        "Failed to CUDA calloc async 4 bytes",
        "Error out of memory at line 380 in file /src/csrc/pythonInterface.c",
        "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with shape[32,147,147,32]",
        "MemoryError: std::bad_alloc: RMM failure at:/rmm/mr/device/pool_memory_resource.hpp:182: Maximum pool size exceeded",
        "Exception in main training loop: Out of memory allocating 1,024 bytes (allocated so far: 3,635,267 bytes).",
    ),
    "accelerator_oom": (
        "pyopencl._cl.MemoryError: create_buffer failed: MEM_OBJECT_ALLOCATION_FAILURE",
        "[METAL] Command buffer execution failed: Insufficient Memory",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 63.98 GiB",
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.92 GB, other allocations: 228.33 MB, max allowed: 18.13 GB)",
        "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity)",
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.00 GiB.",
        "RuntimeError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 1.00G. That was not possible.",
        "RESOURCE_EXHAUSTED: Attempting to reserve 12.04G at the bottom of memory. That was not possible. There are 10.5G free",
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 18.2G of 15.7G hbm.",
        "RuntimeError: Native API failed. Native API returns: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        "Error: In ExceptionHandling.hpp:76: 'poplar_stream_memory_allocation_error': irlowering.cpp:3516 Out of memory.",
    ),
    "oom_monitor": (
        "ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node n is used (11.8 / 12.3 GB).",
        "distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting",
        "4m11s  Warning  Evicted  pod/egg-7c9d  The node was low on resource: memory. Container egg was using 6110216Ki",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "(raylet) [2024-05-01 12:00:00,123 E 99 99] (raylet) node_manager.cc:3084: 3 Workers (tasks / actors) killed due to "
        "memory pressure (OOM), 0 Workers crashed due to other reasons",
        "low memory! at or below SIGTERM limits: mem 10 %, swap 10 %",
        'sending SIGTERM to process 812 uid 1000 "python": badness 800, VmRSS 28000 MiB',
        "systemd[1]: run-u12.scope: systemd-oomd killed 12 process(es) in this unit.",
    ),
    "oom_host": ("Out of memory: Killed process 1440763 (python) total-vm:87033376kB, anon-rss:60356340kB",),
    "oom_scheduler": (
        "srun: error: gpu17: task 0: Out Of Memory",
        "slurmstepd: error: Job 9046 exceeded memory limit (734003200 > 536870912), being killed",
        "slurmstepd-node-c11-n01: error: Exceeded job memory limit",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=9046.batch. Some of the step tasks have been OOM Killed.",
        "=>> PBS: job killed: mem 8650752kb exceeded limit 8388608kb",
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
        'job 812 exceeds job hard limit "h_vmem" of queue "all.q@n1" (4363194368.0 > limit:4294967296.0) - sending SIGKILL',
        "Error from slot1@n1: Job has gone over memory limit of 2048 megabytes. Peak usage: 2100 megabytes.",
    ),
    "tmpfs_full": (
        "[3] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
        "ERROR: Unexpected BUS error encountered in DataLoader worker. This might be caused by insufficient shared memory (shm), please check",
        "RuntimeError: DataLoader worker (pid 31207) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
        "OSError: [Errno 28] No space left on device: '/psm_b2f41c09'",
    ),
    "oom_cgroup": (
        "Memory cgroup out of memory: Killed process 812 (python) total-vm:8kB",
        "    Reason:       OOMKilled",
        "Container killed by YARN for exceeding memory limits. 5.5 GB of 5.5 GB physical memory used.",
        "Container [pid=8788] is running beyond physical memory limits. Current usage: 9.8 GB of 9.8 GB physical memory",
    ),
    "worker_killed": (
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: ...",
        "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
        "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor was unexpectedly",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. ",
        "RuntimeError: DataLoader worker (pid(s) 4242, 4243) exited unexpectedly",
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
        "  traceback : Signal 9 (SIGKILL) received by PID 4242",
        "[launch.py:434:sigkill_handler] ['/usr/bin/python3', '-u', 'main.py'] exits with return code = -9",
        "scons: *** [dmiginit.rsf] Error 137",
        "make: *** [Makefile:7: train] Error 137",
        "subprocess exited with exit code 137",
        "ERROR: worker 3 ended with status: -9",
        "/srv/run.sh: line 12:   943 Killed                  python3 train.py",
        "mpirun noticed that process rank 1 with PID 4242 on node n exited on signal 9 (Killed).",
    ),
    None: (
        "except torch.cuda.OutOfMemoryError:",
        "error: please retry; out of memory errors are logged to oom.log",
        "Error 1379 of 2000 samples, loss 0.3",
        "error code -9.5 of the fit",
        "error: try a smaller batch if there is not enough memory.",
        "If it runs out of memory, reduce the batch size",
        "  raise MemoryError('too large')",
        "memory allocated: 512 MiB, out of 80 GiB",
        "grpc: RESOURCE_EXHAUSTED: Received message larger than max (5242880 vs. 4194304)",
        "openai.RateLimitError: RESOURCE_EXHAUSTED: quota exceeded",
        '"OOMKilled": false,',
        "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
        'job 812 exceeds job hard limit "h_rt" of queue "all.q@n1" (7201 > limit:7200) - sending SIGKILL',
        "DataLoader worker (pid 4242) is killed by signal: Segmentation fault.",
        "Replay memory: 5000 / 10000",
        "Epoch 3: memory 512 MB allocated",
        "UserWarning: this may cause out-of-memory errors on small GPUs",
        "Allocating 1024 MiB for the cache",
    ),
}
CASES = [(line, cause) for cause, lines in LINES.items() for line in lines]


@pytest.mark.parametrize(("line", "cause"), CASES, ids=[line[:60] for line, _ in CASES])
def test_the_line_says_whose_memory_ran_out(line: str, cause: str | None) -> None:
    finder = MarkerFinder(packaged_presets())
    found = [one.event for one in finder.find_markers(line, 0, 1, 5.0) if isinstance(one.event, OutOfMemorySeen)]
    assert {cause_in_log(event).value for event in found} == ({cause} if cause else set())
