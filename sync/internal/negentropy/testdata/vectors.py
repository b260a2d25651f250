#!/usr/bin/env python3
"""Vectors for negentropy protocol version 1, computed without the Go code.

A second, deliberately naive implementation, written from the text of the
protocol: plain lists that are searched from the beginning, numbers of any size,
hashlib and nothing else. Run it in this directory to write the files anew:

    python3 vectors.py

An item group {"label", "from", "to", "base", "every"} stands for the items
i = from .. to-1 with id = SHA-256("<label>-<i>") and
created_at = base + i // every. Other items are given as [created_at, id].
"""
import hashlib
import json

INFINITY = 2**64 - 1
SKIP, FINGERPRINT, IDS = 0, 1, 2


def varint(n):
    digits = [n % 128]
    while n >= 128:
        n //= 128
        digits.insert(0, n % 128 + 128)
    return bytes(digits)


def fingerprint(items):
    total = sum(int.from_bytes(i, "little") for _, i in items) % 2**256
    return hashlib.sha256(total.to_bytes(32, "little") + varint(len(items))).digest()[:16]


class Reader:
    def __init__(self, data):
        self.data, self.last = data, 0

    def take(self, n):
        assert len(self.data) >= n
        head, self.data = self.data[:n], self.data[n:]
        return head

    def varint(self):
        n = 0
        while True:
            byte = self.take(1)[0]
            n = n * 128 + byte % 128
            if byte < 128:
                return n

    def bound(self):
        offset = self.varint()
        self.last = INFINITY if offset == 0 else self.last + offset - 1
        return self.last, self.take(self.varint())


class Writer:
    def __init__(self):
        self.data, self.last = b"\x61", 0

    def range(self, bound, mode, payload=b""):
        time, prefix = bound
        if time == INFINITY:
            self.data += b"\x00"
        else:
            self.data += varint(time - self.last + 1)
            self.last = time
        self.data += varint(len(prefix)) + prefix + varint(mode) + payload

    def ids(self, bound, items):
        self.range(bound, IDS, varint(len(items)) + b"".join(i for _, i in items))


def before(item, bound):
    return item < (bound[0], bound[1] + bytes(32 - len(bound[1])))


def between(items, lower, upper):
    return [i for i in items if not before(i, lower) and before(i, upper)]


def separator(left, right):
    if left[0] != right[0]:
        return right[0], b""
    n = 0
    while left[1][n] == right[1][n]:
        n += 1
    return right[0], right[1][: n + 1]


def split(w, items, upper):
    if len(items) < 32:
        w.ids(upper, items)
        return
    size, extra = divmod(len(items), 16)
    start = 0
    for k in range(16):
        end = start + size + (1 if k < extra else 0)
        bound = upper if end == len(items) else separator(items[end - 1], items[end])
        w.range(bound, FINGERPRINT, fingerprint(items[start:end]))
        start = end


def opening(items):
    w = Writer()
    split(w, sorted(items), (INFINITY, b""))
    return w.data


def reconcile(items, message, client=None):
    """The answer to a message; the client's lists (have, need) are filled if given."""
    items = sorted(items)
    r, w = Reader(message), Writer()
    assert r.take(1) == b"\x61"
    lower, settled = (0, b""), None
    while r.data:
        upper, mode = r.bound(), r.varint()
        mine = between(items, lower, upper)
        answer = None
        if mode == FINGERPRINT:
            if r.take(16) != fingerprint(mine):
                answer = split
        elif mode == IDS:
            theirs = [r.take(32) for _ in range(r.varint())]
            if client is None:
                answer = lambda w, items, upper: w.ids(upper, items)
            else:
                client[0].extend(i for _, i in mine if i not in theirs)
                client[1].extend(i for i in theirs if i not in [j for _, j in mine])
        else:
            assert mode == SKIP
        if answer is None:
            settled = upper
        else:
            if settled is not None:
                w.range(settled, SKIP)
                settled = None
            answer(w, mine, upper)
        lower = upper
    return w.data


def group(label, first, to, base=1_700_000_000, every=1):
    return {"label": label, "from": first, "to": to, "base": base, "every": every}


def expand(spec):
    items = [(t, bytes.fromhex(i)) for t, i in spec.get("items", [])]
    for g in spec.get("groups", []):
        for i in range(g["from"], g["to"]):
            digest = hashlib.sha256(f"{g['label']}-{i}".encode()).digest()
            items.append((g["base"] + i // g["every"], digest))
    return sorted(set(items))


def write(name, comment, cases, sets=None):
    with open(name, "w") as f:
        json.dump({"comment": comment, "sets": sets or {}, "cases": cases}, f, indent=1)
        f.write("\n")
    print(name, len(cases))


def varints():
    values = [0, 1, 127, 128, 129, 255, 256, 16383, 16384, 2**21 - 1, 2**21, 2**28, 2**32,
              1_700_000_000, 2**35 - 1, 2**56, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
    write("varint.json", "numbers (as text) and their encoding",
          [{"value": str(v), "hex": varint(v).hex()} for v in values])


def fingerprints():
    ones = "ff" * 32
    low = "01" + "00" * 31
    specs = {
        "empty": {},
        "one": {"groups": [group("a", 0, 1)]},
        "seven": {"groups": [group("a", 0, 7)]},
        "eight": {"groups": [group("a", 0, 8)]},
        "nine, one second": {"groups": [group("a", 0, 9, every=100)]},
        "127": {"groups": [group("a", 0, 127)]},
        "128, a count of two bytes": {"groups": [group("a", 0, 128)]},
        "20,000, a count of three bytes": {"groups": [group("a", 0, 20_000)]},
        "the sum is 2^256": {"items": [[1, ones], [2, low]]},
        "a carry through every word": {"items": [[1, "ff" * 31 + "7f"], [2, low]]},
        "all ones, three times": {"items": [[1, ones], [2, ones], [3, ones]]},
        "zero is an id too": {"items": [[1, "00" * 32]]},
    }
    write("fingerprint.json", "fingerprint of all items",
          [{"name": n, "set": s, "hex": fingerprint(expand(s)).hex()} for n, s in specs.items()])


def sets():
    pre = "ab" * 20
    return {
        "empty": {},
        "one": {"groups": [group("a", 0, 1)]},
        "31, still listed": {"groups": [group("a", 0, 31)]},
        "32, split": {"groups": [group("a", 0, 32)]},
        "33, uneven parts": {"groups": [group("a", 0, 33)]},
        "100 in one second": {"groups": [group("b", 0, 100, every=1000)]},
        "300 in three seconds": {"groups": [group("c", 0, 300, every=100)]},
        "long common prefixes": {"items": [[5, pre + f"{k:04x}" + "00" * 10] for k in range(40)]},
        "differing in the last byte": {"items": [[5, "cd" * 31 + f"{k:02x}"] for k in range(64)]},
        "the same id at two times": {"items": [[k, "ee" * 32] for k in range(33)]},
        "times from 0 to the last one": {
            "items": [[t, hashlib.sha256(b"%d" % t).hexdigest()]
                      for k in range(63) for t in (2**k - 1, 2**63 + 2**k - 1, 2**64 - 2)]},
    }


def openings():
    write("open.json", "first message for a set, frames without limit",
          [{"name": n, "set": s, "hex": opening(expand(s)).hex()} for n, s in sets().items()])


def transcripts():
    a = lambda lo, hi, every=1: group("a", lo, hi, every=every)
    # An id belongs to one time, so that set isn't one that can be reconciled.
    some = {n: s for n, s in sets().items() if n != "the same id at two times"}
    pairs = [(n, m) for n in some for m in some]
    for name, client, server in [
        ("one is missing there", [a(0, 5000)], [a(0, 2345), a(2346, 5000)]),
        ("one is missing here", [a(0, 17), a(18, 5000)], [a(0, 5000)]),
        ("two pieces each", [a(0, 700), a(900, 2000)], [a(0, 1400), a(1450, 2100)]),
        ("seconds of 40", [a(0, 900, 40)], [a(30, 930, 40)]),
        ("nothing in common", [a(0, 150)], [group("d", 0, 170)]),
        ("every fourth is missing", [a(0, 600)], [a(k, k + 3) for k in range(0, 600, 4)]),
    ]:
        some[name + ", client"] = {"groups": client}
        some[name + ", server"] = {"groups": server}
        pairs.append((name + ", client", name + ", server"))
    cases = []
    for left, right in pairs:
        client, server = expand(some[left]), expand(some[right])
        have, need, messages = [], [], [opening(client)]
        while True:
            messages.append(reconcile(server, messages[-1]))
            messages.append(reconcile(client, messages[-1], (have, need)))
            if messages[-1] == b"\x61":
                break
        here, there = {i for _, i in client}, {i for _, i in server}
        assert sorted(have) == sorted(here - there) and sorted(need) == sorted(there - here)
        cases.append({
            "client": left, "server": right,
            # Long messages are given by their hash.
            "messages": [m.hex() if len(m) <= 120 else "sha256:" + hashlib.sha256(m).hexdigest()
                         for m in messages],
            "have": hashlib.sha256(b"".join(sorted(have))).hexdigest(), "haves": len(have),
            "need": hashlib.sha256(b"".join(sorted(need))).hexdigest(), "needs": len(need),
        })
    write("transcript.json", "whole conversations, client first, frames without limit; the "
          "client's last message, which isn't sent, is 61; have and need are the SHA-256 of "
          "the sorted ids", cases, some)


if __name__ == "__main__":
    varints()
    fingerprints()
    openings()
    transcripts()
