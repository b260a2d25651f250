// Package conformance has programs that others wrote judge examples/graspserver: the compliance
// suite grasp-audit, the client ngit, and the server ngit-grasp as a peer. Its tests run where
// FIELD_TOOLS names the folder that these are in, and say so elsewhere.
package conformance
