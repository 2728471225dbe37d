"""Google's (XML) or Azure's (Blob) storage API on a free port of loopback, as far as one object is put and got: cloud_server.py google|azure.

A bucket (a container) "team" is there. Who asks must be allowed: by the bearer token "a-token" for Google, by a signature with the account key below
for Azure. Whoever looks for an object called "late.fcals" loses a race: somebody else puts one there before the answer is on its way. Prints its
address; ends when its standard input does. Written after the providers' own descriptions:

  https://cloud.google.com/storage/docs/xml-api/overview
  https://learn.microsoft.com/rest/api/storageservices/put-blob
  https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
"""

import base64
import hashlib
import hmac
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

ACCOUNT = "someone"
ACCOUNT_KEY = base64.b64encode(b"the key of someone's account").decode()
BUCKET = "team"
objects = {}


class Storage(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        headers = [("Content-Type", "application/xml"), ("x-ms-error-code", code)]
        self.answer(status, headers, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode())

    def name(self):
        bucket, _, name = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        return name if bucket == BUCKET else None

    def found(self):
        if not self.allowed():
            return
        if self.name() not in objects:
            if self.name() == "late.fcals":
                self.put(b"another's")
            self.refuse(404, self.missing)
            return
        body, etag = objects[self.name()]
        headers = [("ETag", etag), ("Last-Modified", formatdate(usegmt=True)), *self.described]
        if self.command == "HEAD":
            self.send_response(200)
            for header in [*headers, ("Content-Length", str(len(body)))]:
                self.send_header(*header)
            self.end_headers()
        else:
            self.answer(200, headers, body)

    do_GET = do_HEAD = found

    def put(self, body):
        objects[self.name()] = (body, f'"{hashlib.md5(body).hexdigest()}"')

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.allowed():
            return
        if self.name() is None:
            self.refuse(404, self.no_bucket)
        elif self.only_new() and self.name() in objects:
            self.refuse(*self.exists)
        elif self.complete():
            self.put(body)
            self.answer(self.written, [("ETag", objects[self.name()][1]), *self.described])
        else:
            self.refuse(400, "MissingRequiredHeader")


class Google(Storage):
    missing, no_bucket, exists, written = "NoSuchKey", "NoSuchBucket", (412, "PreconditionFailed"), 200
    described = [("x-goog-generation", "1")]

    def allowed(self):
        fine = self.headers["Authorization"] == "Bearer a-token"
        if not fine:
            self.refuse(401, "AuthenticationRequired")
        return fine

    def only_new(self):
        return self.headers["x-goog-if-generation-match"] == "0"

    def complete(self):
        return True


class Azure(Storage):
    missing, no_bucket, exists, written = "BlobNotFound", "ContainerNotFound", (409, "BlobAlreadyExists"), 201
    described = [("x-ms-blob-type", "BlockBlob")]

    def allowed(self):
        signature = hmac.new(base64.b64decode(ACCOUNT_KEY), self.to_sign().encode(), hashlib.sha256).digest()
        fine = self.headers["Authorization"] == f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
        if not fine:
            self.refuse(403, "AuthenticationFailed")
        return fine

    def to_sign(self):
        names = ["Encoding", "Language", "Length", "MD5", "Type"]
        standard = [self.headers[f"Content-{name}"] or "" for name in names]
        standard[2] = "" if standard[2] == "0" else standard[2]
        conditions = ["Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"]
        standard += [self.headers[name] or "" for name in conditions]
        own = sorted((name.lower(), value.strip()) for name, value in self.headers.items() if name.lower().startswith("x-ms-"))
        asked = urlsplit(self.path)
        query = sorted((name.lower(), value) for name, value in parse_qsl(asked.query, keep_blank_values=True))
        lines = [self.command, *standard, *(f"{name}:{value}" for name, value in own), f"/{ACCOUNT}{asked.path}"]
        return "\n".join([*lines, *(f"{name}:{value}" for name, value in query)])

    def only_new(self):
        return self.headers["If-None-Match"] == "*"

    def complete(self):
        return self.headers["x-ms-blob-type"] == "BlockBlob" and self.headers["x-ms-version"] is not None


server = ThreadingHTTPServer(("127.0.0.1", 0), {"google": Google, "azure": Azure}[sys.argv[1]])
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{server.server_port}", flush=True)
sys.stdin.read()
