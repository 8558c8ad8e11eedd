// Every collective against its definition, on every transport, for every group size, type and odd
// counts: so all transports give the same bits.
#include <atomic>
#include <cstring>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/comm/rank_bed.h"

namespace orthant {
namespace {

constexpr int kMostRanks = 8;
// Around the block of 256 and the chunk of 64 KiB.
constexpr std::int64_t kCounts[] = {0, 1, 255, 257, 1001, 34003};

// Random bits from a table: drawing each anew would take most of the time.
double value_at(int rank, std::int64_t i) {
  constexpr std::size_t kSize = 4096;
  static const std::vector<double> kTable = [] {
    std::vector<double> table(kSize);
    for (std::size_t at = 0; at < kSize; ++at) {
      table[at] = normal(11, 0, at);
    }
    return table;
  }();
  return kTable[static_cast<std::size_t>(i + rank * 1237) % kSize];
}

template <class T>
T element(int rank, std::int64_t i) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return static_cast<std::int64_t>(1e6 * value_at(rank, i));
  } else {
    return T(static_cast<float>(value_at(rank, i)));
  }
}

template <class T>
void fill(const Tensor& tensor, int rank) {
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    tensor.ptr<T>()[i] = element<T>(rank, i);
  }
}

template <class T>
constexpr bool kIs16Bit = std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>;

// The definition: rank after rank, 16-bit types in f32 and rounded once.
template <class T>
T sum_at(int size, std::int64_t i) {
  if constexpr (kIs16Bit<T>) {
    auto sum = static_cast<float>(element<T>(0, i));
    for (int rank = 1; rank < size; ++rank) {
      sum += static_cast<float>(element<T>(rank, i));
    }
    return T(sum);
  } else {
    T sum = element<T>(0, i);
    for (int rank = 1; rank < size; ++rank) {
      sum += element<T>(rank, i);
    }
    return sum;
  }
}

template <class T>
double as_double(T value) {
  if constexpr (kIs16Bit<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Counts the elements that differ from expected(i): EXPECT in every element would be slow.
template <class T, class Expected>
std::int64_t num_wrong(const Tensor& tensor, Expected expected) {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    if (!same_bits(tensor.ptr<T>()[i], expected(i))) ++wrong;
  }
  return wrong;
}

template <class T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct TypeOf<double> {
  static constexpr DType kValue = DType::kF64;
};
template <>
struct TypeOf<BFloat16> {
  static constexpr DType kValue = DType::kBF16;
};
template <>
struct TypeOf<Half> {
  static constexpr DType kValue = DType::kF16;
};
template <>
struct TypeOf<std::int64_t> {
  static constexpr DType kValue = DType::kI64;
};

template <class T>
class Collectives : public testing::Test {
 protected:
  static constexpr DType kType = TypeOf<T>::kValue;
  // body(bed, count) for all transports, sizes and counts.
  template <class Body>
  static void for_all(Body body) {
    for (int size = 1; size <= kMostRanks; ++size) {
      on_all_transports(size, [&body](RankBed& bed) {
        for (const std::int64_t count : kCounts) {
          Frame frame(bed.arena);
          body(bed, count);
        }
      });
    }
  }
};
using Types = testing::Types<float, double, BFloat16, Half, std::int64_t>;
TYPED_TEST_SUITE(Collectives, Types);

TYPED_TEST(Collectives, AllReduceAddsInRankOrder) {
  this->for_all([this](RankBed& bed, std::int64_t count) {
    const int size = bed.comm->size();
    const Tensor t = bed.alloc({count}, this->kType);
    fill<TypeParam>(t, bed.comm->rank());
    bed.comm->all_reduce(t, Reduce::kSum);
    EXPECT_EQ(num_wrong<TypeParam>(t, [&](std::int64_t i) { return sum_at<TypeParam>(size, i); }),
              0)
        << size << " ranks, " << count << " elements";
  });
}

TYPED_TEST(Collectives, AllReduceTakesTheMaximum) {
  this->for_all([this](RankBed& bed, std::int64_t count) {
    const Tensor t = bed.alloc({count}, this->kType);
    fill<TypeParam>(t, bed.comm->rank());
    bed.comm->all_reduce(t, Reduce::kMax);
    const auto largest = [&](std::int64_t i) {
      TypeParam found = element<TypeParam>(0, i);
      for (int rank = 1; rank < bed.comm->size(); ++rank) {
        const auto next = element<TypeParam>(rank, i);
        // Exact: the values are floats or integers below 2^53.
        if (as_double(next) > as_double(found)) found = next;
      }
      return found;
    };
    EXPECT_EQ(num_wrong<TypeParam>(t, largest), 0);
  });
}

TYPED_TEST(Collectives, AllGatherPutsPartsInRankOrder) {
  this->for_all([this](RankBed& bed, std::int64_t count) {
    const int size = bed.comm->size();
    const int rank = bed.comm->rank();
    const auto expected = [&](std::int64_t i) {
      return element<TypeParam>(static_cast<int>(i / count), i % count);
    };
    // Inside of the whole, and apart from it.
    const Tensor whole = bed.alloc({size * count}, this->kType);
    fill<TypeParam>(whole.flat(rank * count, count), rank);
    bed.comm->all_gather(whole, whole.flat(rank * count, count));
    EXPECT_EQ(num_wrong<TypeParam>(whole, expected), 0);
    if (size == 1) return;
    const Tensor other = bed.alloc({size, count}, this->kType);
    const Tensor part = bed.alloc({1, count}, this->kType);
    fill<TypeParam>(part, rank);
    bed.comm->all_gather(other, part);
    EXPECT_EQ(num_wrong<TypeParam>(other, expected), 0);
  });
}

TYPED_TEST(Collectives, ReduceScatterGivesEachRankItsRun) {
  this->for_all([this](RankBed& bed, std::int64_t count) {
    const int size = bed.comm->size();
    const int rank = bed.comm->rank();
    const auto expected = [&](std::int64_t i) {
      return sum_at<TypeParam>(size, rank * count + i);
    };
    const Tensor whole = bed.alloc({size * count}, this->kType);
    if (size > 1) {
      const Tensor part = bed.alloc({count}, this->kType);
      fill<TypeParam>(whole, rank);
      bed.comm->reduce_scatter(part, whole);
      EXPECT_EQ(num_wrong<TypeParam>(part, expected), 0);
      EXPECT_EQ(
          num_wrong<TypeParam>(whole, [&](std::int64_t i) { return element<TypeParam>(rank, i); }),
          0);
    }
    fill<TypeParam>(whole, rank);
    bed.comm->reduce_scatter(whole.flat(rank * count, count), whole);
    EXPECT_EQ(num_wrong<TypeParam>(whole.flat(rank * count, count), expected), 0);
  });
}

TYPED_TEST(Collectives, BroadcastCopiesTheRoot) {
  this->for_all([this](RankBed& bed, std::int64_t count) {
    for (int root = 0; root < bed.comm->size(); ++root) {
      const Tensor t = bed.alloc({count}, this->kType);
      fill<TypeParam>(t, bed.comm->rank());
      bed.comm->broadcast(t, root);
      EXPECT_EQ(
          num_wrong<TypeParam>(t, [&](std::int64_t i) { return element<TypeParam>(root, i); }), 0);
    }
  });
}

TEST(Collectives, BroadcastAndGatherMoveAnyType) {
  on_all_transports(3, [](RankBed& bed) {
    for (const DType dtype : {DType::kU8, DType::kI32, DType::kF16}) {
      const Tensor t = bed.alloc({3, 5}, dtype);
      std::memset(t.data, bed.comm->rank() + 1, static_cast<std::size_t>(t.bytes()));
      bed.comm->all_gather(t, t.rows(bed.comm->rank(), 1));
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(t.rows(rank, 1).ptr<std::uint8_t>()[4], rank + 1);
      }
      bed.comm->broadcast(t.rows(0, 1), 2);
      EXPECT_EQ(t.ptr<std::uint8_t>()[0], 1);
    }
  });
}

TEST(Collectives, NoRankLeavesABarrierBeforeAllHaveCome) {
  for (int size = 1; size <= kMostRanks; ++size) {
    std::atomic<int> num_come = 0;
    run_ranks(size, 60, [&](RankBed& bed) {
      for (int round = 1; round <= 20; ++round) {
        ++num_come;
        bed.comm->barrier();
        EXPECT_GE(num_come.load(), round * size);
        bed.comm->barrier();
      }
    });
  }
}

}  // namespace
}  // namespace orthant
