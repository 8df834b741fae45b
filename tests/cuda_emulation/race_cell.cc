#include <tandem/tests/cuda_emulation/race_cell.h>

namespace cuda_emulation {
namespace {

using R = AccessRecord;

constexpr uint64_t kSplit = 3;
constexpr uint32_t kAllBytes = 0xF;

struct Touch {
  const Accessor& who;
  AccessKind kind;
  uint32_t scope_first;

  bool counts(uint64_t record) const { return R::serial(record) >= scope_first && record != 0; }

  bool ordered(uint64_t record) const {
    const uint32_t serial = R::serial(record);
    if (serial != who.serial) {
      return serial >= who.block_first;  // an earlier interval of this block, or another block
    }
    return R::thread(record) == who.thread;
  }

  bool conflict(uint64_t record) const {
    switch (kind) {
      case kPlainWrite: return true;
      case kPlainRead: return (R::kind(record) & kAtomic) != 0;
      case kAtomic: return (R::kind(record) & kPlainRead) != 0;
    }
    return true;
  }

  bool races(uint64_t record) const { return counts(record) && conflict(record) && !ordered(record); }

  /// Checks a cell whose records all have the same bytes.
  std::optional<Race> touch(RaceCell& cell, uint32_t mask, bool* initialised) const {
    const uint64_t now = R::make(who.serial, who.thread, mask, kind);
    const bool written = counts(cell.write);
    if (initialised != nullptr) {
      *initialised = written;
    }
    if (written && !ordered(cell.write)) {
      return Race{cell.write};
    }
    for (const uint64_t record : {cell.first, cell.second, cell.other}) {
      if (races(record)) {
        return Race{record};
      }
    }
    if (kind == kPlainWrite) {
      cell = {now, 0, 0, 0};
    } else {
      add(cell, now);
    }
    return std::nullopt;
  }

  // Adds a read or an atomic access to the accesses since the last write.
  void add(RaceCell& cell, uint64_t now) const {
    if (cell.first != 0 && R::serial(cell.first) != who.serial) {
      // From an earlier interval: ordered for this block, but not for later blocks. Another block can only have
      // accessed in the same way, so that one record represents both.
      if (counts(cell.first)) {
        cell.other = (counts(cell.other) ? cell.other : cell.first) | R::kind(cell.first) |
                     (counts(cell.second) ? R::kind(cell.second) : 0);
      }
      cell.first = cell.second = 0;
    }
    for (uint64_t* slot : {&cell.first, &cell.second}) {
      if (*slot == 0) {
        *slot = now;
        return;
      }
      if (R::thread(*slot) == who.thread) {
        *slot |= kind;
        return;
      }
    }
  }
};

void split(RaceCell& cell, const Touch& touch, std::vector<SplitCell>& splits) {
  SplitCell bytes;
  for (uint32_t i = 0; i < 4; ++i) {
    const auto of_byte = [&](uint64_t record) {
      return touch.counts(record) && (R::mask(record) >> i & 1) != 0 ? record | kAllBytes << 2 : uint64_t{0};
    };
    bytes.bytes[i] = {of_byte(cell.write), of_byte(cell.other), of_byte(cell.first), of_byte(cell.second)};
  }
  splits.push_back(bytes);
  cell = {R::make(touch.who.serial, 0, 0, kSplit), splits.size() - 1, 0, 0};
}

}  // namespace

std::optional<Race> touch_cell(RaceCell& cell, const Accessor& who, uint32_t mask, AccessKind kind,
                               uint32_t scope_first, std::vector<SplitCell>& splits, bool* initialised) {
  const Touch touch{who, kind, scope_first};
  const bool written = touch.counts(cell.write);
  const bool first = touch.counts(cell.first), second = touch.counts(cell.second), other = touch.counts(cell.other);
  if (!written) {
    if (!first && !second && !other) {  // no record yet
      const uint64_t now = R::make(who.serial, who.thread, mask, kind);
      cell = kind == kPlainWrite ? RaceCell{now, 0, 0, 0} : RaceCell{0, 0, now, 0};
      if (initialised != nullptr) {
        *initialised = false;
      }
      return std::nullopt;
    }
    cell.write = 0;  // a split cell from an earlier launch or block
  }
  if (R::kind(cell.write) != kSplit) {
    const auto same = [mask](uint64_t record) { return R::mask(record) == mask; };
    if ((!written || same(cell.write)) && (!first || same(cell.first)) && (!second || same(cell.second)) &&
        (!other || same(cell.other))) {
      return touch.touch(cell, mask, initialised);
    }
    split(cell, touch, splits);
  }
  SplitCell& bytes = splits[cell.other];
  bool all = true;
  for (uint32_t i = 0; i < 4; ++i) {
    if ((mask >> i & 1) == 0) {
      continue;
    }
    bool one = true;
    if (const auto race = touch.touch(bytes.bytes[i], kAllBytes, initialised != nullptr ? &one : nullptr)) {
      return race;
    }
    all = all && one;
  }
  if (initialised != nullptr) {
    *initialised = all;
  }
  return std::nullopt;
}

}  // namespace cuda_emulation
