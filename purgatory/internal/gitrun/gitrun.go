// Package gitrun contains the common environment, settings and limits of git children.
package gitrun

import "strconv"

// Environment returns the whole environment of git children: no configuration files, passwords,
// protocols, or replaced or fetched objects.
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

// Settings returns arguments that disable hooks and maintenance, sync all writes, log ref changes,
// hide our refs, and limit memory.
func Settings() []string {
	return []string{
		"-c", "core.hooksPath=/dev/null",
		"-c", "core.fsmonitor=false",
		"-c", "gc.auto=0",
		"-c", "maintenance.auto=false",
		"-c", "core.fsync=objects,derived-metadata,reference",
		"-c", "core.fsyncMethod=fsync",
		"-c", "core.logAllRefUpdates=always",
		"-c", "transfer.hideRefs=refs/graspsync",
		"-c", "core.packedGitWindowSize=1m",
		"-c", "core.packedGitLimit=16m",
		"-c", "core.deltaBaseCacheLimit=8m",
		"-c", "core.bigFileThreshold=16m",
		"-c", "pack.windowMemory=16m",
		"-c", "pack.writeReverseIndex=false", // only repack writes one
		"-c", "pack.deltaCacheSize=8m",
	}
}

func allocLimit(bytes int64) string { return "GIT_ALLOC_LIMIT=" + strconv.FormatInt(bytes, 10) }

// Beside returns the environment in which git writes objects to a folder, relative to the repository,
// and also reads those of the repository. A colon in the folder would separate two paths.
func Beside(folder string) []string {
	return []string{"GIT_OBJECT_DIRECTORY=" + folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES=objects"}
}

// Only returns the environment in which git sees only the objects of a folder.
func Only(folder string) []string { return []string{"GIT_OBJECT_DIRECTORY=" + folder} }
