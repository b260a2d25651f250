// Package upload implements the part of git's smart HTTP protocol that fetches objects by id
// (gitprotocol-http, gitprotocol-v2, gitprotocol-pack): one GET discovers the server, and one POST
// requests a pack. It requests only the given URL and redirects of the GET: no dumb protocol,
// bundles and packfile URIs. All reads are limited.
package upload
