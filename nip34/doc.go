// Package nip34 parses the events of Git over Nostr (NIP-34). It reads announcements, states, pull
// requests and deletions, decides who is a member of a repository, returns the events and
// repositories that an event refers to, and reports whether an announcement lists this service.
//
//	a, err := nip34.ParseAnnouncement(event)
//	if err == nil && us.Lists(a) {
//		// a.Relays are the relays to sync from
//	}
//
// No parser panics. Invalid values are left out, and long lists are cut. Signatures are not
// verified, and strings of results may share memory with events.
package nip34
