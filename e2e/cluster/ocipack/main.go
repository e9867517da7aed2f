// Command ocipack packs files into an OCI image archive that "ctr images import" takes, without a container engine.
//
//	ocipack -out OUT.tar -image NAME:TAG[,LABEL=VALUE...] [-image ...] [-root DIR] [-file SRC=DST]... [options]
//
// The same input always gives the same bytes: entries are sorted, times are zero, and nothing of the machine gets in.
// "ocipack -describe FILE.tar" prints what an archive's image is, to compare it with another.
// Every -image becomes one manifest of the archive; all of them share the one layer and differ in their own labels.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

// pairs turns KEY=VALUE words into a map; encoding/json writes maps in the order of their keys.
func pairs(words []string) (map[string]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%q is not KEY=VALUE", w)
		}
		m[k] = v
	}
	return m, nil
}

// runConfig is the part of an image's configuration that tells how to run it.
type runConfig struct {
	User       string            `json:"User,omitempty"`
	Env        []string          `json:"Env,omitempty"`
	Entrypoint []string          `json:"Entrypoint,omitempty"`
	Cmd        []string          `json:"Cmd,omitempty"`
	WorkingDir string            `json:"WorkingDir,omitempty"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type imageConfig struct {
	Created      string    `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

// entry is one file of the layer: where it lies here and what it is called in the image.
type entry struct{ src, dst string }

// inode identifies a file on this machine, so that a second name of it becomes a hard link and not a second copy.
type inode struct{ dev, ino uint64 }

// walk lists everything under root, named as the image will name it.
func walk(root string) ([]entry, error) {
	var out []entry
	err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil || rel == "." {
			return err
		}
		out = append(out, entry{p, filepath.ToSlash(rel)})
		return nil
	})
	return out, err
}

// writeLayer writes the entries as a tar archive. owned says that the files' owners and modes are the image's too;
// without it everything belongs to root and only the executable bit counts, so that a build's umask changes nothing.
func writeLayer(w io.Writer, entries []entry, owned bool) error {
	sort.Slice(entries, func(i, j int) bool { return entries[i].dst < entries[j].dst })
	t := tar.NewWriter(w)
	seen := map[inode]string{}
	for _, e := range entries {
		info, err := os.Lstat(e.src)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		h := &tar.Header{Name: e.dst, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if owned {
			h.Uid, h.Gid, h.Mode = int(st.Uid), int(st.Gid), int64(st.Mode&0o7777)
		} else if h.Mode = 0o644; info.IsDir() || info.Mode()&0o111 != 0 {
			h.Mode = 0o755
		}
		switch {
		case info.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, e.dst+"/"
		case info.Mode()&os.ModeSymlink != 0:
			h.Typeflag = tar.TypeSymlink
			h.Mode = 0o777
			if h.Linkname, err = os.Readlink(e.src); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			id := inode{uint64(st.Dev), st.Ino}
			if first, ok := seen[id]; ok && st.Nlink > 1 {
				h.Typeflag, h.Linkname = tar.TypeLink, first
				break
			}
			seen[id] = e.dst
			h.Typeflag, h.Size = tar.TypeReg, info.Size()
		default:
			continue // devices and sockets: the runtime makes those it wants
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", e.dst, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := copyFile(t, e.src); err != nil {
			return fmt.Errorf("%s: %w", e.dst, err)
		}
	}
	return t.Close()
}

func copyFile(w io.Writer, src string) error {
	f, err := os.Open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// archive is the OCI layout being written: small blobs are held, the layer lies in a file.
type archive struct {
	blobs map[string][]byte
}

func (a *archive) add(mediaType string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	sum := sha256.Sum256(b)
	d := hex.EncodeToString(sum[:])
	a.blobs[d] = b
	return descriptor{MediaType: mediaType, Digest: "sha256:" + d, Size: int64(len(b))}, nil
}

func writeBytes(t *tar.Writer, name string, b []byte) error {
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(b)), ModTime: time.Unix(0, 0)}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(t, bytes.NewReader(b))
	return err
}

// write puts the archive together: the layout file, the index, then every blob in the order of its digest.
func (a *archive) write(out io.Writer, idx index, layer *os.File, layerDesc descriptor) error {
	t := tar.NewWriter(out)
	if err := writeBytes(t, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	b, err := json.Marshal(idx)
	if err != nil {
		return err
	}
	if err := writeBytes(t, "index.json", b); err != nil {
		return err
	}
	var digests []string
	for d := range a.blobs {
		digests = append(digests, d)
	}
	sort.Strings(digests)
	for _, d := range digests {
		if err := writeBytes(t, "blobs/sha256/"+d, a.blobs[d]); err != nil {
			return err
		}
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	h := &tar.Header{Name: "blobs/sha256/" + strings.TrimPrefix(layerDesc.Digest, "sha256:"), Typeflag: tar.TypeReg,
		Mode: 0o644, Size: layerDesc.Size, ModTime: time.Unix(0, 0)}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.Copy(t, layer); err != nil {
		return err
	}
	return t.Close()
}

// fullName gives an image's name the form containerd stores it under.
func fullName(name string) (full, tag string, err error) {
	base := path.Base(name)
	_, tag, ok := strings.Cut(base, ":")
	if !ok || tag == "" {
		return "", "", fmt.Errorf("image %q has no tag", name)
	}
	first, _, more := strings.Cut(name, "/")
	switch {
	case !more:
		return "docker.io/library/" + name, tag, nil
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		return "docker.io/" + name, tag, nil
	}
	return name, tag, nil
}

func run() error {
	var images, files, env, entrypoint, cmd, labels, annotations list
	out := flag.String("out", "", "the archive to write")
	root := flag.String("root", "", "a folder whose content becomes the image's, with its owners and modes")
	user := flag.String("user", "", "the image's user, UID:GID")
	workdir := flag.String("workdir", "", "the image's working directory")
	arch := flag.String("arch", "amd64", "the image's architecture")
	flag.Var(&images, "image", "NAME:TAG[,LABEL=VALUE...], several times for several images of the same content")
	flag.Var(&files, "file", "SRC=DST, one file owned by root")
	flag.Var(&env, "env", "NAME=VALUE")
	flag.Var(&entrypoint, "entrypoint", "one word of the entrypoint")
	flag.Var(&cmd, "cmd", "one word of the default command")
	flag.Var(&labels, "label", "KEY=VALUE, a label of every image")
	flag.Var(&annotations, "annotation", "KEY=VALUE, an annotation of every image's manifest")
	static := flag.Bool("static", false, "refuse a -file that is not a statically linked program")
	show := flag.String("describe", "", "only print what the image in this archive is")
	flag.Parse()
	if *show != "" {
		return describe(os.Stdout, *show)
	}
	if *out == "" || len(images) == 0 || (*root == "") == (len(files) == 0) || flag.NArg() > 0 {
		flag.Usage()
		return errors.New("wanted: -out, -image, and either -root or -file")
	}

	var entries []entry
	var err error
	if *root != "" {
		if entries, err = walk(*root); err != nil {
			return err
		}
	}
	for _, f := range files {
		src, dst, ok := strings.Cut(f, "=")
		if !ok {
			return fmt.Errorf("-file %q is not SRC=DST", f)
		}
		if *static {
			if err := checkStatic(src); err != nil {
				return err
			}
		}
		entries = append(entries, entry{src, strings.TrimPrefix(path.Clean("/"+dst), "/")})
	}

	layer, err := os.CreateTemp(filepath.Dir(*out), ".ocipack-*")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	sum := sha256.New()
	if err := writeLayer(io.MultiWriter(layer, sum), entries, *root != ""); err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	layerDesc := descriptor{MediaType: typeLayer, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: size}

	common, err := pairs(labels)
	if err != nil {
		return err
	}
	notes, err := pairs(annotations)
	if err != nil {
		return err
	}
	a := &archive{blobs: map[string][]byte{}}
	idx := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, image := range images {
		words := strings.Split(image, ",")
		name, tag, err := fullName(words[0])
		if err != nil {
			return err
		}
		own, err := pairs(words[1:])
		if err != nil {
			return err
		}
		all := map[string]string{}
		for _, m := range []map[string]string{common, own} {
			for k, v := range m {
				all[k] = v
			}
		}
		config, err := a.add(typeConfig, imageConfig{
			Created: "1970-01-01T00:00:00Z", Architecture: *arch, OS: "linux",
			Config: runConfig{User: *user, Env: env, Entrypoint: entrypoint, Cmd: cmd, WorkingDir: *workdir, Labels: all},
			RootFS: rootFS{"layers", []string{layerDesc.Digest}},
		})
		if err != nil {
			return err
		}
		m, err := a.add(typeManifest, manifest{2, typeManifest, config, []descriptor{layerDesc}, notes})
		if err != nil {
			return err
		}
		m.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
		idx.Manifests = append(idx.Manifests, m)
	}

	// The archive appears under its name only when it is whole.
	tmp, err := os.CreateTemp(filepath.Dir(*out), ".ocipack-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := a.write(tmp, idx, layer, layerDesc); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), *out)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ocipack:", err)
		os.Exit(1)
	}
}
