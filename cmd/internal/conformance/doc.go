// Package conformance has programs that others wrote judge cmd/graspserver: the compliance
// suite grasp-audit, the client ngit, and the server ngit-grasp as a peer, one of few repositories
// and one of many. Its tests run where FIELD_TOOLS names the folder that these are in, and say so
// elsewhere. HUB_REPOS=300 has the hub of TestHub have so many repositories; with more than usual,
// two servers of one kind are compared with those of two kinds.
package conformance
