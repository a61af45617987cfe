"""A small docker engine on a unix socket, which runs commands as processes of this machine.

It speaks the part of Docker's Engine API that ``nightjar.sandboxes.containers`` uses (version 1.41), connections that
are taken over for the streams of a command included. A container is a directory; there is no isolation, and
``/workspace`` in the paths of requests means that directory.
"""

import json
import os
import re
import shutil
import signal
import socket
import socketserver
import struct
import subprocess
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlparse


class Container:
    def __init__(self, config, folder, name=""):
        self.id, self.config, self.execs, self.created = uuid.uuid4().hex, config, [], int(time.time())
        self.name = name or self.id
        self.folder = tempfile.mkdtemp(prefix="nightjar-container-", dir=folder)

    def remove(self):
        for running in self.execs:
            running.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Exec:
    def __init__(self, container, config):
        self.id, self.container, self.config, self.process = uuid.uuid4().hex, container, config, None

    def start(self):
        inside = [self._outside(part) for part in self.config["Cmd"]]
        variables = dict(line.split("=", 1) for line in self.config.get("Env") or [])
        self.process = subprocess.Popen(
            inside, cwd=self._outside(self.config.get("WorkingDir") or "/workspace"),
            env={"PATH": os.environ["PATH"]} | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def kill(self):
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _outside(self, path):
        folder = self.container.folder
        return folder + path.removeprefix("/workspace") if re.match(r"/workspace(/|$)", path) else path


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path, images=("python:3.11-slim",)):
        self.images, self.containers, self.execs, self.requests = set(images), {}, {}, []
        self.built = {}  # labels by name
        self.faults = []  # (method, path pattern, status, message): answered once each
        self.may_create = threading.Event()
        self.may_create.set()
        super().__init__(str(path), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()
        for container in self.containers.values():
            container.remove()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass

    def handle(self):
        with suppress(ConnectionError):
            super().handle()

    def route(self):
        method = self.command
        url = urlparse(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = re.sub(r"^/v1\.\d+", "", url.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.body = json.loads(body) if body[:1] == b"{" else {}
        self.server.requests.append((method, path, self.body))
        for fault in self.server.faults:
            if fault[0] == method and re.fullmatch(fault[1], path):
                self.server.faults.remove(fault)
                return self.reply(fault[2], {"message": fault[3]})
        for pattern, known, answer in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and method == known:
                return answer(self, *found.groups())
        return self.reply(404, {"message": f"no such page: {method} {path}"})

    def reply(self, status, content=None):
        body = b"" if content is None else json.dumps(content).encode()
        self.begin(status, {"Content-Type": "application/json", "Content-Length": str(len(body))})
        self.wfile.write(body)

    def begin(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    do_GET = do_POST = do_DELETE = route  # noqa: N815 - the names of http.server

    def version(self):
        self.reply(200, {"ApiVersion": "1.41", "Version": "test", "Components": [{"Name": "Engine"}]})

    def image(self, name):
        if name in self.server.images:
            return self.reply(200, {"Id": "sha256:1", "RepoTags": [name]})
        return self.reply(404, {"message": "no image"})

    def pull(self):
        name = f"{self.query['fromImage']}:{self.query.get('tag', 'latest')}"
        if name.startswith("nowhere"):
            return self.reply(404, {"message": f"pull access denied for {name}"})
        self.server.images.add(name)
        return self.reply(200, {"status": "done"})

    def built(self):
        """Lists the built images that have a label, ``name=value``."""
        [asked] = json.loads(self.query["filters"])["label"]
        names = [name for name, labels in self.server.built.items() if asked in labels]
        self.reply(200, [{"Id": f"sha256:{name}", "RepoTags": [name]} for name in names])

    def remove_image(self, key):
        del self.server.built[key]
        self.reply(200, [])

    def build(self):
        self.server.images |= {self.query["t"], "123456789abc"}
        labels = json.loads(self.query.get("labels", "{}"))
        self.server.built[self.query["t"]] = [f"{name}={value}" for name, value in labels.items()]
        self.reply(200, {"stream": "Successfully built 123456789abc\n"})

    def create(self):
        self.server.may_create.wait(60)
        folder = os.path.dirname(self.server.server_address)  # noqa: PTH120
        container = Container(self.body, folder, self.query.get("name", ""))
        self.server.containers[container.id] = container
        self.reply(201, {"Id": container.id, "Warnings": []})

    def containers(self):
        """Lists the containers that have all labels of the query, with any value."""
        asked = json.loads(self.query.get("filters", "{}")).get("label", [])
        known = [(each, each.config.get("Labels") or {}) for each in self.server.containers.values()]
        shown = [
            {"Id": each.id, "Names": [f"/{each.name}"], "Labels": labels, "State": "running", "Created": each.created,
             "ImageID": f"sha256:{each.config['Image']}"}
            for each, labels in known if all(name in labels for name in asked)
        ]  # fmt: skip
        self.reply(200, shown)

    def container(self, key):
        container = self.server.containers.get(key)
        if container is None:
            self.reply(404, {"message": f"No such container: {key}"})
        return container

    def start(self, key):
        if self.container(key):
            self.reply(204)

    def remove(self, key):
        if container := self.container(key):
            del self.server.containers[key]
            container.remove()
            self.reply(204)

    def new_exec(self, key):
        if container := self.container(key):
            created = Exec(container, self.body)
            container.execs.append(created)
            self.server.execs[created.id] = created
            self.reply(201, {"Id": created.id})

    def inspect_exec(self, key):
        running = self.server.execs[key]
        code = running.process.poll()
        code = 128 - code if code is not None and code < 0 else code
        self.reply(200, {"Running": code is None, "ExitCode": code, "Pid": running.process.pid})

    def start_exec(self, key):
        """Takes the connection over: frames of output go out, bytes of input come in."""
        running = self.server.execs[key]
        self.close_connection = True
        raw = "application/vnd.docker.raw-stream"
        self.begin(101, {"Content-Type": raw, "Connection": "Upgrade", "Upgrade": "tcp"})
        script = " ".join(running.config["Cmd"])
        if "kill -KILL" in script:
            self.kill_all_of(running)
        if "kill -KILL" in script or "chmod 1777" in script:
            running.process = subprocess.Popen(["true"])
            running.process.wait()
            return
        running.start()
        lock = threading.Lock()
        process = running.process
        pipes = ((process.stdout, 1, lock), (process.stderr, 2, lock))
        pumps = [threading.Thread(target=self.pump, args=pipe) for pipe in pipes]
        feeding = threading.Thread(target=self.feed, args=(process.stdin,), daemon=True)
        for thread in [*pumps, feeding]:
            thread.start()
        for thread in pumps:
            thread.join()
        process.wait()
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        feeding.join()

    def pump(self, pipe, number, lock):
        with suppress(OSError), pipe:
            while data := pipe.read1(65536):
                with lock:
                    self.connection.sendall(struct.pack(">B3xI", number, len(data)) + data)

    def feed(self, pipe):
        with suppress(OSError), pipe:
            while data := self.rfile.read1(65536):
                pipe.write(data)
                pipe.flush()

    def kill_all_of(self, killing):
        kind, number = killing.config["Cmd"][-2:]
        for other in killing.container.execs:
            user, _, group = (other.config.get("User") or "").partition(":")
            if number == {"Uid": user, "Gid": group}[kind]:
                other.kill()


ROUTES = [
    (r"/_ping", "GET", Handler.version), (r"/version", "GET", Handler.version),
    (r"/images/(.+)/json", "GET", Handler.image), (r"/images/create", "POST", Handler.pull),
    (r"/build", "POST", Handler.build), (r"/containers/create", "POST", Handler.create),
    (r"/containers/json", "GET", Handler.containers),
    (r"/images/json", "GET", Handler.built), (r"/images/(.+)", "DELETE", Handler.remove_image),
    (r"/containers/(\w+)/start", "POST", Handler.start), (r"/containers/(\w+)", "DELETE", Handler.remove),
    (r"/containers/(\w+)/exec", "POST", Handler.new_exec), (r"/exec/(\w+)/start", "POST", Handler.start_exec),
    (r"/exec/(\w+)/json", "GET", Handler.inspect_exec),
]  # fmt: skip
