"""The folder among the temporary files in which this module hands files to the program."""

import fcntl
import os
import socket
import stat
import tempfile

from unmask._errors import Error

_NEW = ".new"


class Folder:
    """Where this user's shared objects, sockets and traces are for as long as they are used: nobody else's, so that nobody
    else's code is loaded and nobody else is answered. What is used is locked; what was left by processes that were killed
    is removed. After a fork the parent's files are the parent's to remove."""

    def __init__(self):
        self.path = os.path.join(tempfile.gettempdir(), f"unmask-policies-{os.getuid()}")
        try:
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            pass
        except OSError as trouble:
            raise Error(f"cannot make the folder {self.path}: {trouble.strerror}") from None
        found = os.lstat(self.path)
        if not stat.S_ISDIR(found.st_mode):
            raise Error(f"{self.path} is not a folder: policies are kept there; remove it, or set TMPDIR")
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
            raise Error(f"{self.path} belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}, expected "
                        f"user {os.getuid()} and mode 700: what is there is run; remove it, or set TMPDIR")
        self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.owner = os.getpid()
        self._held = {}  # descriptors of files by their names
        for name in os.listdir(self._fd):
            self._remove_left(name)

    def _lock(self, name, flags, how):
        """A descriptor of the file of that name, locked; None where somebody else has the lock, or it is gone."""
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
        try:
            fcntl.flock(fd, how)
            now = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            if now.st_ino == os.fstat(fd).st_ino:
                return fd
        except OSError:
            pass
        os.close(fd)
        return None

    def _remove_left(self, name):
        try:
            if stat.S_ISLNK(os.lstat(name, dir_fd=self._fd).st_mode):  # none of ours
                os.unlink(name, dir_fd=self._fd)
            elif name.endswith(_NEW):
                os.kill(int(name.partition("-")[0]), 0)  # whoever makes it lives
            elif name.endswith(".sock"):
                with socket.socket(socket.AF_UNIX) as asked:
                    asked.connect(self._place(name))
            else:
                fd = self._lock(name, os.O_RDONLY, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if fd is not None:
                    os.unlink(name, dir_fd=self._fd)
                    os.close(fd)
        except (ConnectionRefusedError, ProcessLookupError):
            os.unlink(name, dir_fd=self._fd)
        except (OSError, ValueError):
            pass

    def _place(self, name):
        """A path that is short, however long the folder's is: sockets have 107 bytes for it."""
        return f"/proc/self/fd/{self._fd}/{name}"

    def write(self, name, content):
        """A file that stays until nobody holds it; whoever writes one of the same name writes the same."""
        while True:
            fd = self._lock(name, os.O_RDWR | os.O_CREAT, fcntl.LOCK_SH)
            if fd is None:
                continue
            if os.fstat(fd).st_size == len(content):
                self._held[name] = fd
                return
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_size != len(content):
                os.ftruncate(fd, 0)
                try:
                    with os.fdopen(os.dup(fd), "wb") as file:
                        file.write(content)
                except OSError as trouble:
                    os.unlink(name, dir_fd=self._fd)
                    os.close(fd)
                    raise Error(f"cannot write {self.path}/{name}: {trouble.strerror}") from None
            os.close(fd)

    def listen(self, name):
        """A socket that listens, under its name only once it does."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._place(name + _NEW))
        listener.listen(64)
        os.replace(name + _NEW, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self._held[name] = None
        return listener

    def close(self):
        is_owner = self.owner == os.getpid()
        for name, fd in self._held.items():
            try:
                if not is_owner:
                    continue
                if fd is None:
                    os.unlink(name, dir_fd=self._fd)
                    continue
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_ino == os.fstat(fd).st_ino:
                    os.unlink(name, dir_fd=self._fd)
            except OSError:
                pass  # somebody else uses it, and removes it
            finally:
                if fd is not None:
                    os.close(fd)
        os.close(self._fd)
