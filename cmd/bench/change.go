package main

import "fmt"

// changes are the kinds of changes, by name in the benchmark.
var changes = []struct{ name, what string }{
	{"root", "a root event, with the batches that it leads to"},
	{"deleted", "one deleted"},
	{"repository", "a repository, with the batches that it leads to"},
	{"gone", "one gone"},
}

// microseconds is the target in µs of a figure that must be below a millisecond.
const microseconds = 999

func measureChange(r *run) error {
	large, small := 10_000, 1000
	sizes := fmt.Sprintf("(%d|%d)", small, large)
	if r.quick {
		large = small
		sizes = fmt.Sprint(small)
	}
	found, err := r.benchmark("sync/internal/plan", fmt.Sprintf("^BenchmarkChange$/^.*$/^usual$/^repos=%s$", sizes),
		"-benchtime", fmt.Sprintf("%dx", r.pick(2000, 200)))
	if err != nil {
		return err
	}
	others := 0.0
	for _, c := range changes {
		got := found[fmt.Sprintf("Change/%s/usual/repos=%d", c.name, large)]
		less := found[fmt.Sprintf("Change/%s/usual/repos=%d", c.name, small)]
		r.atMost(c.what+", CPU for a relay that it concerns", got["cpu-us/relay"], "us", microseconds)
		r.figure(c.what+", effects for such a relay", got["effects/relay"], "")
		if !r.quick {
			r.figure(c.what+", CPU of that against a hub of a tenth", got["cpu-us/relay"]/less["cpu-us/relay"], "")
		}
		others += got["others/op"]
	}
	r.figure("the end of a batch", found[fmt.Sprintf("Change/root/usual/repos=%d", large)]["us/batch"], "us")
	r.atMost("effects for relays that a change does not concern", others, "", 0)
	return nil
}
