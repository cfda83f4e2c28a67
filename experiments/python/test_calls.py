"""Tests of calls as processes: files and sockets, ends, stops, what is raised: `make wheel-test`."""

import copy
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import unittest.mock

import pandas

import unmask

BASE = dict(gpu="l40s", system="dllm-serve", workload="burst", rate=0.3, requests=10)


def setUpModule():
    unmask._policy._Trials.LIMIT_S = 0.05


class InOrder(unmask.Scheduler):
    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        for request in view.waiting:
            if not batch.admit(request):
                break


class Raises(InOrder):
    def __init__(self, raised, in_trial=True):
        self.raised, self.in_trial = raised, in_trial

    def __deepcopy__(self, _):  # raises this very object
        return self

    def schedule(self, view, batch):
        if view.is_trial <= self.in_trial:
            raise self.raised
        super().schedule(view, batch)


class Counts(InOrder):
    """Admits one at two of three moments, which it counts in itself."""

    def __init__(self):
        self.n, self.last = 0, None

    def schedule(self, view, batch):
        self.n, self.last = self.n + (self.last != view.now_ns), view.now_ns
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        for request in view.waiting[:8 if self.n % 3 == 0 else 1]:
            if not batch.admit(request):
                break


class CountsDecided(unmask.Decoder):
    def __init__(self):
        self.n, self.last = 0, None

    def choose(self, request, offsets, confidences):
        question = request.id, request.steps
        self.n, self.last = self.n + (self.last != question), question
        return [i < (3 if self.n % 3 == 0 else 1) for i in range(len(offsets))]


class CannotBeCopied(InOrder):
    def __init__(self):
        self.lock = threading.Lock()


class Endless(InOrder):
    def schedule(self, view, batch):
        while True:
            pass


def processes():
    """Processes of the program that were started from here, or by whom we started."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/environ", "rb") as file:
                if MARK in file.read().split(b"\0"):
                    with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as stat:
                        name, _, rest = stat.read().partition("(")[2].rpartition(")")
                    if rest.split()[0] != "Z" and not name.startswith("python"):
                        found.append((int(number), rest.split()[0]))
        except OSError:
            pass
    return found


MARK = b"UNMASK_TEST_MARK=" + str(os.getpid()).encode()
os.environ["UNMASK_TEST_MARK"] = str(os.getpid())
LONG = dict(gpu="l40s", system="dllm-serve", workload="burst", rate=0.3, requests=100000000)


def wait_for(is_so, limit_s=10):
    until = time.monotonic() + limit_s
    while not is_so() and time.monotonic() < until:
        time.sleep(0.02)
    return is_so()


def started(code):
    """Python with a call under way, which signals end as they do in a shell: nohup and background jobs ignore some."""
    path = os.path.dirname(os.path.dirname(unmask.__file__))
    child = subprocess.Popen([sys.executable, "-c", SIGNALS + textwrap.dedent(code)], env={**os.environ, "PYTHONPATH": path},
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert wait_for(processes), child.communicate(timeout=5)
    return child


SIGNALS = "import signal\nsignal.signal(2, signal.default_int_handler)\nsignal.signal(1, signal.SIG_DFL)\n"
PLAIN = f"import unmask\nunmask.run(**{LONG!r})"
BUSY = f"""
import unmask
class Busy(unmask.Scheduler):
    def schedule(self, view, batch):
        while True: pass
unmask.run(**{LONG!r}, scheduler=Busy())
"""


class Lines(unittest.TestCase):
    """What the program hands over, and how long its next question is looked for."""

    def line(self, hello, n_ends):
        ends = [os.open(os.devnull, os.O_RDWR) for _ in range(n_ends)]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(theirs, [hello], ends)
            for end in ends:
                os.close(end)
            return unmask._process.Line(ours, {"a.so": "a policy"})

    def test_a_stranger_is_not_answered_and_leaves_nothing(self):
        n_open = len(os.listdir("/proc/self/fd"))
        for hello, n_ends in ((b"\0b.so", 3), (b"\0a.so", 2), (b"\0a.so", 1), (b"a.so", 3), (b"\0", 3)):
            with self.assertRaises(unmask._process.Gone):
                self.line(hello, n_ends)
        for hello in b"\0a.so", b"\1a.so":
            line = self.line(hello, 3)
            self.assertEqual((line.policy, line.is_trial), ("a policy", hello[0] == 1))
            line.close()
            line.close()
        self.assertEqual(len(os.listdir("/proc/self/fd")), n_open)

    def test_a_call_leaves_no_descriptor(self):
        n_open = []
        for _ in range(2):
            unmask.run(**BASE, scheduler=InOrder())
            n_open.append(len(os.listdir("/proc/self/fd")))
        self.assertEqual(*n_open)

    def test_answers_of_any_length_go_out_whole_and_questions_come_whole(self):
        asks, says = os.pipe()
        hears, answers = os.pipe()
        memory = os.memfd_create("question")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(theirs, [b"\0a.so"], [asks, answers, memory])
            line = unmask._process.Line(ours, {"a.so": "a policy"})
        for end in asks, answers:
            os.close(end)
        self.addCleanup(line.close)
        for n in 1, 100, 4096, 4097, 300000, 5:  # the memory grows, and what was read of it stays
            text = os.urandom(n)
            os.truncate(memory, max(n, os.fstat(memory).st_size))
            os.pwrite(memory, text, 0)
            os.write(says, struct.pack("<q", n))
            question = line.hear_question()
            self.assertEqual(question, text)
            os.pwrite(memory, bytes(n), 0)
            self.assertEqual(question, text)
        os.write(says, struct.pack("<q", -(2**40)))
        self.assertEqual(line.hear_number(), -(2**40))
        told, heard = os.urandom(1 << 20), bytearray()  # more than a pipe holds
        teller = threading.Thread(target=line.tell, args=(told,))
        teller.start()
        while len(heard) < len(told):
            heard += os.read(hears, 1000)
        teller.join()
        self.assertEqual(heard, told)
        os.close(says)
        os.close(hears)
        os.close(memory)
        for gone in line.hear_question, line.hear_number, lambda: line.tell(b"x"):
            self.assertRaises(unmask._process.Gone, gone)

    def test_counts_are_shown_as_they_come(self):
        shown = unittest.mock.Mock()
        program = unmask._process.Program({}, None, None, shown)
        self.addCleanup(program._poll.close)
        counts, says = os.pipe()
        program._handle(counts, program._hear_counts)
        for text, show in ((b"1 10 poi", None), (b"nts\n", (1, 10, "points")), (b"2 10 points\n5 10 points of it\n6", (5, 10, "points of it")),
                           (b" 10 points\n", (6, 10, "points"))):
            os.write(says, text)
            program._hear_counts(counts)
            self.assertEqual([call.args for call in shown.show.call_args_list], [show] if show else [])
            shown.reset_mock()
        os.close(says)
        self.assertEqual(program._poll.poll(1)[0][0], counts)
        program._hear_counts(counts)
        self.assertEqual((program._handlers, program._poll.poll(0)), ({}, []))
        os.close(counts)

    def test_what_was_looked_for_in_vain_is_looked_for_less_often(self):
        program = unmask._process.Program({}, None, None, None)
        self.addCleanup(program._poll.close)
        program._lines, program._looks = {3: None}, True
        found, looks = [], []

        def poll(timeout):
            self.assertEqual(timeout, 0)
            looks.append(True)
            return found

        def looked(n):
            """Which of the next n waits look."""
            which = []
            for _ in range(n):
                looks.clear()
                which.append((program._look(poll) or []) == found and len(looks) > 0)
            return "".join(".x"[one] for one in which)

        with unittest.mock.patch.object(unmask._process.Program, "LOOK_S", 1e-5):
            self.assertEqual(looked(14), "x.x...x.......")
            self.assertEqual(looked(1 + 15), "x" + 15 * ".")
            for _ in range(20):
                looked(1024)
            program._waits = 0
            self.assertEqual(looked(1025), "x" + 1023 * "." + "x")
        found.append((3, 1))
        program._waits = 0
        self.assertEqual(looked(10), 10 * "x")
        found.clear()
        self.assertEqual(looked(4), "x.x.")  # 1023 halved ten times is 0
        for lines, may_look in (({}, True), ({3: None, 4: None}, True), ({3: None}, False)):
            program._lines, program._looks, program._waits = lines, may_look, 0
            self.assertEqual(looked(3), "...")


class Folders(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root, before = self._folder.name, tempfile.tempdir
        self.addCleanup(setattr, tempfile, "tempdir", before)
        tempfile.tempdir = self.root
        self.path = os.path.join(self.root, f"unmask-policies-{os.getuid()}")

    def test_nothing_stays(self):
        for n in range(3):
            policy = InOrder()
            policy.n = n
            unmask.run(**BASE, scheduler=policy)
        self.assertEqual(os.listdir(self.path), [])
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o700)
        with self.assertRaises(unmask.PolicyError):
            unmask.run(**BASE, scheduler=Raises(KeyError("x")))
        self.assertEqual(os.listdir(self.path), [])

    def test_a_folder_that_others_may_write_to_is_refused(self):
        os.mkdir(self.path)
        for mode in (0o777, 0o755, 0o710):
            os.chmod(self.path, mode)
            with self.assertRaisesRegex(unmask.Error, f"mode {mode:o}"):
                unmask.run(**BASE, scheduler=InOrder())
        os.rmdir(self.path)
        elsewhere = os.path.join(self.root, "elsewhere")
        os.mkdir(elsewhere, 0o700)
        os.symlink(elsewhere, self.path)
        with self.assertRaisesRegex(unmask.Error, "is not a folder"):
            unmask.run(**BASE, scheduler=InOrder())
        self.assertEqual(os.listdir(elsewhere), [])
        os.unlink(self.path)
        with open(self.path, "w", encoding="ascii"):
            pass
        with self.assertRaisesRegex(unmask.Error, "is not a folder"):
            unmask.run(**BASE, scheduler=InOrder())

    def test_what_the_killed_left_is_removed_and_what_is_used_is_not(self):
        os.mkdir(self.path, 0o700)
        with open(os.path.join(self.path, "Old-0123.so"), "wb") as file:
            file.write(b"x")
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(os.path.join(self.path, "1-1.sock"))
        with socket.socket(socket.AF_UNIX) as used:
            used.bind(os.path.join(self.path, "1-2.sock"))
            used.listen(1)
            unmask.run(**BASE, scheduler=InOrder())
            self.assertEqual(os.listdir(self.path), ["1-2.sock"])

    def test_links_in_the_folder_are_none_of_ours(self):
        os.mkdir(self.path, 0o700)
        policy = InOrder()
        with unmask._policy.Policies() as policies:
            name = os.path.basename(policies.path_of(policy))
        kept = os.path.join(self.root, "kept")
        with open(kept, "wb") as file:
            file.write(b"x")
        for link in (name, "1-1.sock", "2.sock.new"):
            os.symlink(kept, os.path.join(self.path, link))
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(os.path.join(self.path, "99999999-1.sock.new"))
        self.assertEqual(unmask.run(**BASE, scheduler=policy)["completed"], 10)
        self.assertEqual((os.listdir(self.path), os.path.getsize(kept)), ([], 1))

    def test_calls_at_once_with_one_policy(self):
        results, policy = [], InOrder()
        threads = [threading.Thread(target=lambda: results.append(unmask.run(**BASE, scheduler=policy)["makespan_s"]))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [unmask.run(**BASE)["makespan_s"]] * 4)
        self.assertEqual(os.listdir(self.path), [])

    def test_every_run_and_replica_has_a_policy_of_its_own(self):
        for key, policy, more in (("scheduler", Counts, dict(BASE, requests=40, rates=[2, 20])),
                                  ("decoder", CountsDecided, dict(BASE, system="sdar", requests=20, rates=[2, 20]))):
            more.pop("rate")
            known, sweeps = policy(), []
            for j in (1, 8, 8):
                sweeps.append(list(unmask.sweep(**more, seeds=2, set={key: known}, j=j)["makespan_s"]))
                self.assertEqual(known.n, 0)
            self.assertEqual(sweeps[1:], [sweeps[0]] * 2)
            more.pop("rates")
            alone = policy()
            self.assertEqual(unmask.run(**more, rate=20, seed=1, **{key: alone})["makespan_s"], sweeps[0][2])
            self.assertGreater(alone.n, 10)
        replicas = [unmask.run(**dict(BASE, rate=60, requests=60), replicas=3, scheduler=Counts())["makespan_s"] for _ in "ab"]
        self.assertEqual(*replicas)

    def test_what_cannot_be_copied_is_shared_and_the_rest_is_not(self):
        policy = Counts()
        alone = unmask.run(**dict(BASE, rate=20, requests=40), scheduler=policy)["makespan_s"]
        policy = Counts()
        policy.lock, policy.me = threading.Lock(), policy
        rows = unmask.sweep(**dict(BASE, rates=[20, 20], rate=None, requests=40), set={"scheduler": policy})
        self.assertEqual(list(rows["makespan_s"]), [alone] * 2)

    def test_what_holds_a_lock_is_copied_around_it(self):
        class Part:
            def __init__(self):
                self.lock, self.n = threading.Lock(), 0

        class Slotted:
            __slots__ = "lock", "n"
            __init__ = Part.__init__

        class CopiesAnew(Part):  # without what was copied before
            def __deepcopy__(self, _):
                copy.deepcopy(self.lock)

        class Own(unmask.Scheduler):
            __slots__ = "lock", "part", "names"

            def __init__(self, part):
                self.lock, self.part, self.names = threading.Lock(), part, [{"same": part}]

        class Listed(list, unmask.Scheduler):
            pass

        for part in (Part(), Slotted()):
            policy = Own(part)
            own = unmask._process.Copies(True).of(policy, True)
            self.assertIs(own.lock, policy.lock)
            self.assertIsNot(own.part, part)
            self.assertIs(own.names[0]["same"], own.part)
            self.assertIs(own.part.lock, part.lock)
            self.assertEqual(own.part.n, 0)
        policy = Listed([Part(), 7])
        own = unmask._process.Copies(True).of(policy, True)
        self.assertEqual(own[1], 7)
        self.assertIsNot(own[0], policy[0])
        policy = Own(CopiesAnew())
        self.assertIs(unmask._process.Copies(True).of(policy, True).part, policy.part)

    def test_a_folder_with_a_long_name(self):
        tempfile.tempdir = os.path.join(self.root, "x" * 100)
        os.mkdir(tempfile.tempdir)
        self.assertEqual(unmask.run(**BASE, scheduler=InOrder())["makespan_s"], unmask.run(**BASE)["makespan_s"])


class Ends(unittest.TestCase):
    def tearDown(self):
        for number, _ in processes():
            os.kill(number, signal.SIGKILL)

    def test_the_program_ends_with_python(self):
        for code, number in ((PLAIN, signal.SIGKILL), (PLAIN, signal.SIGTERM), (PLAIN, signal.SIGHUP), (BUSY, signal.SIGKILL)):
            child = started(code)
            child.send_signal(number)
            child.communicate(timeout=20)
            self.assertTrue(wait_for(lambda: not processes(), 2), (code, number))

    def test_it_ends_with_a_python_that_was_stopped(self):
        child = started(PLAIN)
        child.send_signal(signal.SIGSTOP)
        self.assertTrue(wait_for(lambda: {state for _, state in processes()} == {"T"}), processes())
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=10)
        self.assertTrue(wait_for(lambda: not processes(), 2))

    def test_it_is_stopped_and_goes_on_with_python(self):
        child = started(PLAIN)
        child.send_signal(signal.SIGSTOP)
        self.assertTrue(wait_for(lambda: {state for _, state in processes()} == {"T"}), processes())
        child.send_signal(signal.SIGCONT)
        self.assertTrue(wait_for(lambda: processes() and "T" not in {state for _, state in processes()}), processes())
        child.kill()
        child.communicate(timeout=10)

    def test_ctrl_c_ends_everything(self):
        for code in (PLAIN, BUSY):
            child = started(code)
            time.sleep(0.3)
            child.send_signal(signal.SIGINT)
            said, _ = child.communicate(timeout=20)
            self.assertIn("KeyboardInterrupt", said)
            self.assertFalse(processes())

    def test_no_thread_is_left(self):
        before = threading.active_count()
        unmask.run(**BASE, scheduler=InOrder())
        with self.assertRaises(unmask.PolicyError):
            unmask.run(**BASE, scheduler=Raises(KeyError("x")))
        self.assertEqual(threading.active_count(), before)


class Forks(InOrder):
    """Its third decision forks, and the child ends by what Python ends by, or goes on."""

    n = 0

    def __init__(self, ends):
        self.ends = ends

    def schedule(self, view, batch):
        self.n += not view.is_trial
        if self.n == 3 and os.fork() == 0 and self.ends:
            sys.exit(0)
        super().schedule(view, batch)


class Nested(InOrder):
    """Runs something itself while it decides."""

    n = 0

    def schedule(self, view, batch):
        self.n += 1
        if self.n == 2:
            unmask.run(**BASE, scheduler=InOrder())
        assert self.is_trial == view.is_trial
        super().schedule(view, batch)


class Forked(unittest.TestCase):
    def test_a_child_that_ends_ends_nothing_of_its_parents(self):
        trace = unmask.Trace.from_df(pandas.DataFrame({"t": [0.0, 1.0], "p": [10, 20], "o": [32, 32]}), time="t", input="p",
                                     output="o")
        path, parent = trace.path, os.getpid()
        try:
            for policy in (Forks(True), Forks(False), InOrder()):
                self.assertEqual(unmask.run(**BASE, scheduler=policy)["completed"], 10)
        except (SystemExit, unmask.PolicyError):
            os._exit(0 if os.getpid() != parent else 1)
        self.assertEqual([os.wait()[1] for _ in range(2)], [0, 0])
        self.assertTrue(os.path.exists(path))
        self.assertEqual(unmask.run(workload=trace, gpu="l40s")["completed"], 2)

    def test_a_policy_may_run_something_itself(self):
        self.assertEqual(unmask.run(**BASE, scheduler=Nested())["completed"], 10)

    def test_a_strangers_number_is_no_parent(self):
        with subprocess.Popen(["sleep", "9"]) as stranger:
            said = subprocess.run([unmask.program(), "run", "--requests", "30000", "--json"], capture_output=True,
                                  env={**os.environ, "UNMASK_PARENT": str(stranger.pid)})
            stranger.kill()
        self.assertEqual(said.returncode, 0, said.stderr)


class Raised(unittest.TestCase):
    def test_what_a_policy_raises_is_what_the_caller_gets(self):
        class Own(Exception):
            def __init__(self, one, two):
                super().__init__(f"{one} and {two}")

        for raised in (ConnectionError("gone"), ConnectionResetError(104, "reset"), BrokenPipeError("pipe"), TimeoutError("late"),
                       EOFError(), OSError(5, "io"), StopIteration(), ValueError("v"), Own(1, 2), MemoryError(),
                       UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), unmask.Error("inner"), AssertionError()):
            for in_trial in (True, False):
                with self.assertRaises(unmask.PolicyError) as caught:
                    unmask.run(**BASE, scheduler=Raises(raised, in_trial))
                self.assertIs(caught.exception.__cause__, raised)
                if not isinstance(raised, MemoryError):  # Python keeps it to itself
                    self.assertIsInstance(caught.exception, type(raised))
                self.assertIn(f"Raises raised {type(raised).__name__}", str(caught.exception))
        for raised in (KeyboardInterrupt(), SystemExit(3)):
            with self.assertRaises(type(raised)) as caught:
                unmask.run(**BASE, scheduler=Raises(raised))
            self.assertIs(caught.exception, raised)

    def test_sentences_name_what_the_caller_knows(self):
        class Idle(unmask.Scheduler):
            def schedule(self, view, batch):
                pass

        with self.assertRaises(unmask.Error) as caught:
            unmask.run(**BASE, scheduler=Idle())
        self.assertIn("Idle", str(caught.exception))
        # This file's own folder may be named, wherever it lies.
        self.assertNotIn(tempfile.gettempdir(), str(caught.exception).replace(os.path.dirname(os.path.abspath(__file__)), ""))
        with self.assertRaises(unmask.UsageError) as caught:
            unmask.sweep(systems="dllm-serve", set={"early_stop": [True]})
        self.assertNotIn(tempfile.gettempdir(), str(caught.exception))
        with self.assertRaisesRegex(unmask.UsageError, "version has no JSON"):
            unmask.call("version")

    def test_a_signals_handler_may_raise(self):
        def late(*_):
            raise TimeoutError("from a handler")

        before = signal.signal(signal.SIGALRM, late)
        try:
            for options in ({}, {"scheduler": Endless()}):
                signal.setitimer(signal.ITIMER_REAL, 0.5)
                with self.assertRaisesRegex(TimeoutError, "from a handler"):
                    unmask.run(**LONG, **options)
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_a_policy_that_does_not_return_is_ended_by_its_own_time(self):
        from unmask import _process

        before = _process.Watch.LIMIT_S
        _process.Watch.LIMIT_S = 0.3
        try:
            with self.assertRaisesRegex(unmask.PolicyError, "Endless did not return within 0.3 s"):
                unmask.run(**BASE, scheduler=Endless())
            caught = []

            def elsewhere():
                try:
                    unmask.run(**BASE, scheduler=Endless())
                except unmask.PolicyError as raised:
                    caught.append(raised)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join(20)
            self.assertEqual(len(caught), 1)
        finally:
            _process.Watch.LIMIT_S = before

    def test_the_trial_is_short_and_told_apart(self):
        class Slow(InOrder):
            n_trial = n_run = 0

            def schedule(self, view, batch):
                assert view.is_trial == self.is_trial
                Slow.n_trial += view.is_trial
                Slow.n_run += not view.is_trial
                if view.is_trial:
                    time.sleep(0.05)
                super().schedule(view, batch)

        with unittest.mock.patch.object(unmask._policy._Trials, "LIMIT_S", 0.3):
            unmask.run(**BASE, scheduler=Slow())
        self.assertLessEqual(Slow.n_trial, 7)
        self.assertGreater(Slow.n_trial, 0)
        self.assertGreater(Slow.n_run, 0)

    def test_pip_makes_the_wheel_of_a_clone(self):
        """As PEP 517 asks: the file that make has made is copied, and named."""
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import pip_backend
        with tempfile.TemporaryDirectory() as folder:
            root, out = pathlib.Path(folder, "root"), pathlib.Path(folder, "out")
            out.mkdir()
            make = pathlib.Path(folder, "make")
            make.write_text('#!/bin/sh\nmkdir -p build/wheel && echo "$1 $2" >build/wheel/unmask-1-py3-none-any.whl\n')
            make.chmod(0o755)
            root.mkdir()
            with unittest.mock.patch.object(pip_backend, "_ROOT", root), \
                    unittest.mock.patch.dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"):
                self.assertEqual(pip_backend.build_wheel(str(out)), "unmask-1-py3-none-any.whl")
            self.assertEqual((out / "unmask-1-py3-none-any.whl").read_text(), "wheel GLIBC=host\n")


if __name__ == "__main__":
    unittest.main()
