// Package disk tells how much room there is, for those who write what strangers send.
package disk
