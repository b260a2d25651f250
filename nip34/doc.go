// Package nip34 reads the events of Git over Nostr (NIP-34) and what a server of
// them has to know: who announced which repository where, who maintains it, what
// an event refers to, and whether an announcement lists our service.
//
//	a, err := nip34.ParseAnnouncement(event)
//	if err == nil && us.Lists(a) {
//		// a.Relays are the relays to sync from
//	}
//
// Events are strangers' bytes: no parser panics, what can't be used is left out,
// and where a list matters it is bounded and the rest counted. Nothing here looks
// at signatures, clocks or networks; all functions are pure, and what they return
// is safe for concurrent reading. Events that are passed in are not changed;
// strings of the result may share their memory.
package nip34
