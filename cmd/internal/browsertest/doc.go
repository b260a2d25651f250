// Package browsertest checks the public pages and the status page in a real browser.
package browsertest
