// Package index contains the announcements and root events of a Store, and the replies to them. It
// answers from memory which repositories are hosted, and reports each change for the plan.
package index
