"""Imports what a run needs, and forks a spare process for each request, as a child of the process that started it.

It answers with the id of the new process, and once more when the process between them has ended.
"""

import gc
import json
import os
import socket
import sys

from nightjar.hosting import spare_process

MOST_BYTES = 1_000_000


def serve(connection):
    """Answers each request with the id of a new process; returns in that process."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, MOST_BYTES, 1)
        if not message:
            os._exit(0)
        request = json.loads(message)
        if not (between := os.fork()):
            if pid := os.fork():
                connection.send(str(pid).encode())
                os._exit(0)  # so that the new process becomes a child of the worker
            connection.close()
            os.setsid()
            os.dup2(streams[0], 0)
            os.close(streams[0])
            os.chdir(request["folder"])
            sys.path[0] = request["folder"]
            os.environ.clear()
            os.environ.update(request["environment"])
            return
        os.close(streams[0])
        os.waitpid(between, 0)
        connection.send(b"forked")


for name in spare_process._MODULES:
    __import__(name)
gc.freeze()
serve(socket.socket(fileno=int(sys.argv[1])))
try:
    spare_process.main()
finally:
    gc.unfreeze()  # so that libraries find no leaks
