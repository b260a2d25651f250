// Package conformance tests cmd/graspserver with programs of other authors: the compliance suite
// grasp-audit, the client ngit, and the server ngit-grasp as a peer with few and with many
// repositories. FIELD_TOOLS is the folder of these programs; without it the tests are skipped.
// HUB_REPOS=300 sets the number of repositories in TestHub. With more than the default, TestHub
// also compares two servers of one kind with servers of two kinds.
package conformance
