package statuspage

// meanings say what was dropped, by the reason that it is counted under. docs/metrics.md has the same
// reasons, and says more of some.
var meanings = map[string]map[string]string{
	"sync": {
		"relays": "relays beyond the table of all", "relays_listed": "relays beyond the first 16 of an announcement",
		"clones_listed":      "clone URLs beyond what is read of an announcement",
		"maintainers_listed": "people beyond what is read of an announcement",
		"blocked":            "relays of announcements that the operator has blocked",
		"plaintext":          "relays that are reached without TLS, where that is not allowed",
		"roots":              "patches, pull requests and issues beyond 5,000 of a repository: they come in turns",
		"authors":            "authors beyond those whose deletions are asked for: they come in turns",
		"descendants":        "answers to answers beyond those that are asked about",
		"filters":            "filters that no request can hold", "poison": "values that a relay does not stand",
		"named":            "ids beyond those asked for by name",
		"waiting":          "events that waited for others and gave way: they are fetched again",
		"postponed":        "events that there was no room for and that gave way: they are fetched again",
		"rejected":         "events that were rejected, and are not remembered any more: they may be fetched again",
		"remembered":       "of what is remembered: what gave way",
		"unsaved":          "events that could not be saved and had no room to wait: they are fetched again",
		"unproductive":     "connections to relays that sent 8 MiB of what nobody asked for",
		"unread":           "live events that were left out since their relay had sent too much: they are caught up with",
		"unlisted":         "announcements that were removed since nobody lists their author any more",
		"not_dialed":       "connections that our own rules refused, such as those to addresses that are not public",
		"scans":            "scans of our store that could not read everything",
		"own_feed_ids":     "of our own relay: events with a wrong id",
		"own_feed_seconds": "of our own relay: seconds that hold more than a page",
		"observations":     "observations that found the queue of the observer full",
		"health":           "records of relays' health beyond their bound", "memory_chunks": "records that are to survive a restart, beyond their bound",
		"memory_queue": "records that were not written in time", "memory_size": "records that are too large",
		"memory_full": "records that did not fit", "memory_unreadable": "records that could not be read",
	},
	"purgatory": {
		"author": "events of an author of whom 100 wait already", "full": "events that found all places taken",
		"pushed": "pushes without an event that found all places taken", "listed": "strangers' announcements that nobody pays for",
		"displaced": "events that gave way to others", "hunts": "repositories beyond those that are hunted for",
		"inbox":    "messages to the engine beyond its queue: it looks at everything then",
		"gathered": "what was fetched, is not complete, and had no room", "lacking": "of what servers are known to lack: what gave way",
		"clones": "clone URLs beyond 16 of an event", "repositories": "repositories of one name beyond those looked at together",
		"kept": "of what was learned of servers: what was beyond the bound", "remembered": "ids that expired, beyond those that are remembered",
		"unsaved": "requests that were not made since they could not be noted", "repo_day": "requests beyond the bytes of a day for a repository",
		"host_day": "requests beyond the bytes of a day from a server", "ceiling": "what had no room of its owner's, or on the disk",
		"busy": "requests that a server was too busy for", "pull_refs": "refs of pull requests beyond those of their author",
		"pull_displaced": "refs of pull requests that gave way", "pull_unswept": "refs of pull requests that come when others have gone",
		"incomplete": "uploads without all their objects", "departed": "repositories that went out of service",
		"maintenance": "repositories that could not be listed for maintenance",
	},
}

// meaning is what a reason means; the reason alone is told of one that is new.
func meaning(part, reason string) string { return meanings[part][reason] }
