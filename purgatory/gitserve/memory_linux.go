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

// confined is limited for what may be any stranger's: the files that it writes have a
// limit as well, in bytes, and the time that it computes, in seconds.
func confined(memory uint64, file int64, cpu int, command []string) []string {
	const blocks = 512 // by POSIX
	script := `ulimit -f "$1" && ulimit -t "$2" && ulimit -v "$3" && shift 3 && exec "$@"`
	files := "unlimited"
	if file != unlimited {
		files = strconv.FormatInt(file/blocks+1, 10)
	}
	return append([]string{
		shell, "-c", script, "sh", files, strconv.Itoa(cpu), strconv.FormatUint(memory>>10, 10),
	}, command...)
}
