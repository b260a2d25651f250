// Package upload speaks git's smart HTTP protocol with strangers' servers, just as
// much of it as is needed to fetch objects by id (gitprotocol-http,
// gitprotocol-v2, gitprotocol-pack): one GET to find out what the server is, one
// POST for a pack.
//
// It never speaks the dumb protocol, bundles or packfile URIs, so that only the
// URL that was given, and redirects of the GET, are ever requested. Whatever a
// server sends, reading it is bounded.
package upload
