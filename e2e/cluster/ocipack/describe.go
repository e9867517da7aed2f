package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// checkStatic refuses a program that needs a dynamic loader: an image that holds nothing else could not start it.
func checkStatic(file string) error {
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked dynamically; build it with RUSTFLAGS='-C target-feature=+crt-static'", file)
		}
	}
	return nil
}

// describe prints what an image archive's first image is to those who run it, one fact a line in a fixed order: two
// archives with the same description behave the same, whatever made them and however their layers are packed.
func describe(w io.Writer, file string) error {
	blobs, err := readArchive(file)
	if err != nil {
		return err
	}
	var idx index
	if err := json.Unmarshal(blobs["index.json"], &idx); err != nil {
		return err
	}
	if len(idx.Manifests) == 0 {
		return errors.New("no image in it")
	}
	blob := func(digest string) []byte { return blobs["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")] }
	var m manifest
	if err := json.Unmarshal(blob(idx.Manifests[0].Digest), &m); err != nil {
		return err
	}
	var c imageConfig
	if err := json.Unmarshal(blob(m.Config.Digest), &c); err != nil {
		return err
	}
	fmt.Fprintf(w, "platform %s/%s\n", c.OS, c.Architecture)
	fmt.Fprintf(w, "user %q\n", c.Config.User)
	fmt.Fprintf(w, "entrypoint %q\n", c.Config.Entrypoint)
	fmt.Fprintf(w, "command %q\n", c.Config.Cmd)
	var lines []string
	for _, l := range m.Layers {
		more, err := describeLayer(blob(l.Digest))
		if err != nil {
			return err
		}
		lines = append(lines, more...)
	}
	sort.Strings(lines)
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
	return nil
}

func readArchive(file string) (map[string][]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	blobs := map[string][]byte{}
	t := tar.NewReader(f)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return blobs, nil
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		blobs[strings.TrimPrefix(h.Name, "./")] = b
	}
}

func describeLayer(layer []byte) ([]string, error) {
	r := bufio.NewReader(bytes.NewReader(layer))
	var in io.Reader = r
	if magic, _ := r.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		in = z
	}
	var lines []string
	t := tar.NewReader(in)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, t); err != nil {
			return nil, err
		}
		content := h.Linkname
		if h.Typeflag == tar.TypeReg {
			content = hex.EncodeToString(sum.Sum(nil))
		}
		name := "/" + strings.Trim(strings.TrimPrefix(h.Name, "./"), "/")
		lines = append(lines, fmt.Sprintf("file %s mode %04o owner %d:%d size %d content %s",
			name, h.Mode&0o7777, h.Uid, h.Gid, h.Size, content))
	}
}
