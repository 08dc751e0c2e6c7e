"""Judging on many machines: jobs go over a Dask.distributed cluster to workers that hold devices.

    controller (kforge forge, bench)          scheduler            worker (kforge worker), one for each host
    ClusterExecutor -> Link -> JobQueue,
      JobPlacement -> SchedulerExchange  -->  Dask's own  -->  tasks.carry_out -> DeviceHost -> a warm judge
                                         <--              <--

Only functions of `tasks` and `census` are named across the wire; what they are given and what they give is JSON in
bytes (`job_message`), checked on both sides. The scheduler holds nothing that matters: what is outstanding is the
controller's, and it is handed out again. Dask is imported by `connection`, `exchange`, `job_placement` and `link`,
by `worker_process` and by `scheduler_process`, each loaded only when it is used.
"""
