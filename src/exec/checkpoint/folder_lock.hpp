// At most one run saves to a folder of checkpoints at a time, whichever machine it is on.
//
// Rank 0 of a run holds an flock on DIR/.lock as long as it lives. The system frees it when the process ends in
// whatever way, so a run that was killed is in nobody's way, though its file is still there. On NFS it is a lock of the
// server's and holds between machines. Two runs that get past it all the same, on a file system without locks, still do
// not mix: folders of unfinished checkpoints have the run's id in their names, and shards and manifests carry it.
#pragma once

#include <filesystem>
#include <string>

namespace weft {

class FolderLock {
 public:
  // Takes the lock of an existing folder. Throws Error that names the folder where another run holds it, with the
  // process and machine of that run, and where nothing can be written to the folder.
  explicit FolderLock(std::filesystem::path folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // False where the file system has no locks: then nobody knows who else saves there.
  bool is_enforced() const { return is_enforced_; }
  // Takes it again where somebody has removed the file (or the whole folder, which is made again). Throws Error where
  // another run has the folder now.
  void keep();

 private:
  void take();

  std::filesystem::path folder_;
  int descriptor_ = -1;
  bool is_enforced_ = true;
};

}  // namespace weft
