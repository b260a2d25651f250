// Package upload fetches objects by id with git's smart HTTP protocol (gitprotocol-http,
// gitprotocol-v2, gitprotocol-pack): one GET discovers the server, and one POST requests a pack. It
// requests only the given URL and redirects of the GET. All reads are limited.
package upload
