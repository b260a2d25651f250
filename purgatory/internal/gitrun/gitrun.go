// Package gitrun says how git is run, whoever runs it: what it sees of ours, and what it may do
// to itself.
package gitrun

// Environment is all that git sees of ours: nothing. No configuration but what it is given is
// read, nobody is asked for a password, no protocol is allowed, no other host is asked for an object
// that is missed, and what replaces or cuts off histories (replace refs, grafts) does not count.
func Environment() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=/nonexistent",
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=/bin/false",
		"GIT_ALLOW_PROTOCOL=",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_GRAFT_FILE=/nonexistent",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_OPTIONAL_LOCKS=0",
	}
}

// Settings are the configuration that git is given, as arguments: no hook runs, nothing is put
// in order behind our back, what is written is on the disk and in the logs of refs, and a
// crafted pack has git allocate no more than that.
func Settings() []string {
	return []string{
		"-c", "core.hooksPath=/dev/null",
		"-c", "core.fsmonitor=false",
		"-c", "gc.auto=0",
		"-c", "maintenance.auto=false",
		"-c", "core.fsync=objects,derived-metadata,reference",
		"-c", "core.fsyncMethod=fsync",
		"-c", "core.logAllRefUpdates=always",
		"-c", "core.packedGitWindowSize=1m",
		"-c", "core.packedGitLimit=64m",
		"-c", "core.bigFileThreshold=16m",
		"-c", "pack.windowMemory=64m",
		"-c", "pack.deltaCacheSize=32m",
	}
}
