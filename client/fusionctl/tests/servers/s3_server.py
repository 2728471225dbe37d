"""moto's S3 on a free port of loopback, with an empty bucket "team". Prints its address; ends when its standard input does.

Whoever looks for an object called "late.fcals" loses a race: somebody else puts one there before the answer is on its way.
"""

import logging
import os
import sys
import threading

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
os.environ.update(AWS_ACCESS_KEY_ID="someone", AWS_SECRET_ACCESS_KEY="something")
moto = DomainDispatcherApplication(create_backend_app)


def storage(request, start_response):
    answer = moto(request, start_response)
    if request["REQUEST_METHOD"] == "HEAD" and request["PATH_INFO"].endswith("/late.fcals"):
        s3.put_object(Bucket="team", Key="late.fcals", Body=b"another's")
    return answer


server = make_server("127.0.0.1", 0, storage, threaded=True, request_handler=MotoRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}"
s3 = boto3.client("s3", endpoint_url=address, region_name="us-east-1")
s3.create_bucket(Bucket="team")
print(address, flush=True)
sys.stdin.read()
