// Package disk reports free disk space and file limits.
package disk

// MinFree is the default of the minimum free space on a disk, in bytes.
const MinFree = 1 << 30
