package negentropy

// benchPair returns two sets of n items in random order with d scattered differences, half on
// either side.
func benchPair(n, d int) (a, b []Item) {
	r := newRand(5)
	at := func() uint64 { return 1_700_000_000 + r.Uint64N(uint64(n)) }
	for range n - d/2 {
		a = append(a, Item{at(), randomID(r)})
	}
	b = append(b, a...)
	for range d / 2 {
		a = append(a, Item{at(), randomID(r)})
		b = append(b, Item{at(), randomID(r)})
	}
	for _, s := range [][]Item{a, b} {
		r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	}
	return a, b
}
