// Package upload implements the part of git's smart HTTP protocol that fetches objects by id
// (gitprotocol-http, gitprotocol-v2, gitprotocol-pack). One GET discovers the server, and one POST
// requests a pack.
//
// It does not support the dumb protocol, bundles and packfile URIs, so it requests only the given
// URL and redirects of the GET. All reads are limited.
package upload
