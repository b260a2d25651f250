// Package writebehind writes records to a [state.Store] from one goroutine. It batches changes that
// may be lost for a while, and writes changes immediately if a caller waits for them.
//
//	b := writebehind.New(store, cfg)
//	err := b.Load(ctx, "things/", func(key string, value []byte) (there bool, err error) { ... })
//	go b.Run(ctx)
//	b.Put("things/1", value)                                             // soon; never blocks
//	err = b.Save(ctx, writebehind.Change{Key: "things/2", Value: value}) // durable when it returns
//	err = b.Flush(ctx)                                                   // at the end
//
// Failed writes are retried. The queue is bounded, and dropped changes are counted.
package writebehind
