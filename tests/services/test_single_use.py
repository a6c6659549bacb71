"""What counts once does so on PostgreSQL, too, whoever sends it at the same moment."""

import json

from tests.services.stack import Stack

RACE = """
import json, threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from tools_app.identity import single_use
from tools_app.models import OAuthClient
client = OAuthClient.objects.create(client_id=uuid4().hex, source="dynamic", name="x")
owners = [client, User.objects.create(username=uuid4().hex)]
until, together = timezone.now() + timedelta(minutes=1), threading.Barrier(6)
def use(thread):
    try:
        together.wait(20)
        return [key for key in range(20) for owner in owners if single_use.use(owner, [str(key)], until)]
    finally:
        connection.close()
with ThreadPoolExecutor(6) as pool:
    print(json.dumps(sorted(Counter(sum(pool.map(use, range(6)), [])).values())))
"""


def test_each_id_of_an_owner_is_accepted_once_by_threads_that_send_it_together(stack: Stack) -> None:
    assert json.loads(stack.shell(RACE)) == [2] * 20
