// Package hunt decides which clone URL is asked for the missing git data of which
// repository, and when. It is pure: [Queue.Step] takes in what happened and returns
// what is to be done; it has no clock, no goroutine and no network.
//
// Two ways lead to a server. An attempt works through the clone URLs of one
// repository, one at a time; if that takes its time, it asks a second one on another
// domain besides. Who was not asked for all that it may have is asked again at once, a few
// times. URLs whose domain has no room at that moment are left
// to the domain, which asks them as soon as it has, one repository after the other.
// Both have a bound: strangers' slow servers must not take up all that can be fetched.
package hunt
