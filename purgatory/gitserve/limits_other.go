//go:build !linux

package gitserve

// memoryLimit is nothing: only git's own limit holds here.
const memoryLimit = ``
