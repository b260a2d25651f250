// Package absent remembers verified events that are not here, and why: a policy has rejected
// them, they wait for something else, there was no room for them, they were superseded or
// deleted. [Table] is that memory; a [Key] stands for what an event waits for. [Known] is the
// memory of those that need no second look, since they are here.
package absent
