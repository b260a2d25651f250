package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
)

// profiles are those of what is measured of ours: neither of the making of data nor of
// peers. Each measured work has files of its own, with its name before the extension.
type profiles struct {
	cpu, mem string // names of files; empty for none
	begun    bool   // once, by the row that has these
}

// missing reports whether profiles are wanted, and a row has none.
func (p *profiles) missing() bool { return p.cpu+p.mem != "" && !p.begun }

// memoryRate is after how many bytes an allocation is sampled. It costs a few percent.
const memoryRate = 64 << 10

// init has nothing sampled before the work begins.
func (p *profiles) init() {
	if p.mem != "" {
		runtime.MemProfileRate = 0
	}
}

// start begins the profiles of a work. stop writes them.
func (p *profiles) start(work string) (stop func() error, err error) {
	p.begun = true
	var cpu *os.File
	if p.cpu != "" {
		if cpu, err = os.Create(fileOf(p.cpu, work)); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(err, cpu.Close())
		}
	}
	rate := runtime.MemProfileRate
	if p.mem != "" {
		runtime.MemProfileRate = memoryRate
	}
	return func() (err error) {
		if cpu != nil {
			pprof.StopCPUProfile()
			err = cpu.Close()
		}
		if p.mem != "" {
			err = errors.Join(err, writeMemory(fileOf(p.mem, work)))
			runtime.MemProfileRate = rate
		}
		return err
	}, nil
}

// writeMemory writes what was allocated by all works so far: the runtime can't forget.
func writeMemory(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	runtime.GC() // what was allocated since the last one is not told
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}

func fileOf(name, work string) string {
	ext := filepath.Ext(name)
	return strings.TrimSuffix(name, ext) + "-" + strings.NewReplacer("/", "-", " ", "-").Replace(work) + ext
}
