// Package nostrlib joins graspsync to fiatjaf.com/nostr.
package nostrlib
