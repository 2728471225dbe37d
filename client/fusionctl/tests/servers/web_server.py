"""Python's own web server over the working directory, on a free port of loopback. Prints its address; ends when its standard input does."""

import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{server.server_port}", flush=True)
sys.stdin.read()
