// Package disk tells how much room there is, for those who write what strangers send.
package disk

// MinFree is how many bytes are left free unless somebody says otherwise: by git, by who
// fetches, and by who stores events.
const MinFree = 1 << 30
