package gitserve

import "strconv"

// shell sets the limit of memory, and is no more then.
const shell = "/bin/sh"

// limited is a command that sets a limit to its own memory before it begins, and so to
// that of all that it starts. Git http-backend starts others at once: a limit that is
// set from here, when it runs, may come too late for them.
func limited(most uint64, command []string) []string {
	kib := strconv.FormatUint(most>>10, 10)
	return append([]string{shell, "-c", `ulimit -v "$1" && shift && exec "$@"`, "sh", kib}, command...)
}
