package statuspage

import "maps"

// reason describes the dropped items, and whether the server gets them again.
type reason struct{ what, again string }

// meanings describes the dropped items by reason. docs/metrics.md has the same reasons.
var meanings = map[string]map[string]reason{
	"sync": {
		"relays":               {"relays beyond the maximum of the relay table", "Yes, when other relays leave the table"},
		"relays_listed":        {"relays beyond the first 16 of an announcement", "No, the first of a list count"},
		"relays_others":        {"relays that only maintainers list, beyond 16 of a repository", "No, each maintainer gets some in turn"},
		"relays_unusable":      {"relays of announcements with an unusable URL, for example with a port below 1024 except 80 and 443", "No, the author has to correct it"},
		"clones_unusable":      {"clone URLs of announcements that cannot be used", "No, the author has to correct it"},
		"maintainers_unusable": {"maintainers of announcements that are not public keys", "No, the author has to correct it"},
		"clones_listed":        {"clone URLs beyond the limit of an announcement", "No, the first of a list count"},
		"maintainers_listed":   {"maintainers beyond the limit of an announcement", "No, the first of a list count"},
		"blocked":              {"relays of announcements that the operator blocked", "Yes, when the rule is removed"},
		"plaintext":            {"relays without TLS, if plaintext is not allowed", "No, unless plaintext is allowed"},
		"roots":                {"patches, pull requests and issues beyond 5,000 of a repository", "Yes, in rotation"},
		"authors":              {"authors beyond the limit for requests of deletions", "Yes, in rotation"},
		"descendants":          {"answers beyond 500 of a root event or repository, or 100,000 in all", "No, unless another request covers them"},
		"filters":              {"filters that are too large for any request", "No, other relays are asked"},
		"poison":               {"values that a relay refuses", "Yes, after a pause"},
		"named":                {"ids beyond the limit for requests by id", "Yes, by the daily pass"},
		"waiting":              {"events evicted while they waited for another event", "Yes"},
		"postponed":            {"events evicted while they waited for room", "Yes"},
		"rejected":             {"ids of rejected events that were evicted", "Yes, and they are rejected again"},
		"remembered":           {"other remembered ids that were evicted", "Yes"},
		"unsaved":              {"events that could not be saved and had no room to wait", "Yes"},
		"unproductive":         {"connections to relays that sent 8 MiB of unrequested, repeated or forged data", "Yes, after a pause"},
		"unlisted":             {"stored announcements removed because no other announcement lists their author", "Yes, when an announcement lists the author again"},
		"not_dialed":           {"connections that the address rules refused, for example to private addresses", "No, unless -allow-net allows the address"},
		"scans":                {"scans of the own store that were incomplete", "Yes, the scan is repeated"},
		"own_feed_ids":         {"events of the own relay with a wrong id", "No"},
		"own_feed_seconds":     {"seconds of the own relay with more events than a page", "No"},
		"observations":         {"observations that found the observer's queue full", "No, only the observer misses them"},
		"health":               {"health records of relays beyond the limit", "Learned again"},
		"memory_chunks":        {"persistent records beyond the limit", "Learned again after a restart"},
		"memory_queue":         {"persistent records that were not written in time", "Learned again after a restart"},
		"memory_size":          {"persistent records that are too large", "Learned again after a restart"},
		"memory_unreadable":    {"persistent records that could not be read", "Learned again"},
	},
	"purgatory": {
		"author":          {"events of an author with 100 held states, or 100 other held events", "Yes, when a held event of the author ends"},
		"full":            {"events that found the table of held events full", "Yes, when there is room"},
		"listed":          {"announcements whose author no held announcement lists", "Yes, when one lists the author"},
		"displaced":       {"held events that were evicted for other events", "Yes, when there is room"},
		"hunts":           {"repositories beyond the limit of fetch jobs", "Yes, when other jobs end"},
		"inbox":           {"messages beyond the queue of the engine", "Yes, all repositories are examined again"},
		"gathered":        {"incomplete fetched data that had no room", "Yes"},
		"lacking":         {"records of objects that servers lack, beyond the limit", "Learned again"},
		"clones":          {"clone URLs beyond 16 of an event", "No, the first of a list count"},
		"clones_turns":    {"clone URLs beyond the number that one fetch job uses", "Yes, in rotation"},
		"clones_unusable": {"clone URLs of events that cannot be used", "No, the author has to correct it"},
		"repositories":    {"repositories with one identifier beyond 200", "No"},
		"kept":            {"records of git servers beyond the limit", "Learned again"},
		"remembered":      {"ids of expired events beyond the limit", "Learned again"},
		"unsaved":         {"requests that were not sent because they could not be recorded", "Yes"},
		"failed_here":     {"fetches that failed because of git or the disk of this server", "Yes"},
		"gave_way":        {"fetches that were slow for a minute and ended for other owners or authors", "Yes"},
		"repo_day":        {"requests beyond the daily bytes of a repository", "Yes, within a day"},
		"host_day":        {"requests beyond the daily bytes of a server", "Yes, within a day"},
		"ceiling":         {"data beyond the disk limit of its owner or of the server", "Yes, when there is room"},
		"busy":            {"requests that a busy server refused", "Yes"},
		"pull_refs":       {"refs of pull requests that had no room", "Yes, when there is room"},
		"pull_displaced":  {"refs of pull requests that were evicted for other refs", "No"},
		"pull_unswept":    {"refs of pull requests that wait until evicted data is deleted", "Yes, after maintenance"},
		"incomplete":      {"pushes without all their objects", "No, the client has to push again"},
		"maintenance":     {"lists of repositories for maintenance that failed", "Yes"},
	},
}

// meaning returns the description of a reason, or "" for an unknown one.
func meaning(part, name string) string { return meanings[part][name].what }

// again reports in words whether the items are requested again.
func again(part, name string) string { return meanings[part][name].again }

// withAll adds the reasons with a count of 0.
func withAll(part string, counts map[string]uint64) map[string]uint64 {
	all := make(map[string]uint64, len(meanings[part]))
	for name := range meanings[part] {
		all[name] = 0
	}
	maps.Copy(all, counts)
	return all
}
