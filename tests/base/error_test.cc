#include <new>

#include <tandem/base/rank_context.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

TEST(Str, ConcatenatesMixedArguments) { EXPECT_EQ(str("a", 1, ' ', 2.5, " ", true), "a1 2.5 true"); }

TEST(Check, ThrowsRequestedTypeWithFullMessage) {
  try {
    TANDEM_CHECK(IndexError, 1 > 2, "gather: index ", 5, " is out of range");
    FAIL();
  } catch (const IndexError& error) {
    EXPECT_STREQ(error.what(), "gather: index 5 is out of range");
  }
}

TEST(Check, MessageIsEvaluatedOnFailureOnly) {
  int evaluated = 0;
  TANDEM_CHECK(ValueError, true, ++evaluated);
  EXPECT_EQ(evaluated, 0);
  EXPECT_THROW(TANDEM_CHECK(ValueError, false, ++evaluated), ValueError);
  EXPECT_EQ(evaluated, 1);
}

TEST(Error, MessageNamesTheRunningModule) {
  RankContext context;
  RankContext::Use use(context);
  EXPECT_EQ(with_module_scope("relu: wrong"), "relu: wrong");
  context.module_scope = make_ref<ScopeName>("Linear 'encoder.fc1'");
  EXPECT_EQ(with_module_scope("relu: wrong"), "relu: wrong\n  in Linear 'encoder.fc1'");
  try {
    TANDEM_CHECK(ShapeError, false, "addmm: sizes do not fit");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "addmm: sizes do not fit\n  in Linear 'encoder.fc1'");
  }
}

TEST(Error, TextOfFailedAllocationsNamesTheLimits) {
  EXPECT_EQ(error_text(std::bad_alloc()),
            str("out of memory (", std::bad_alloc().what(),
                "): the memory limit (ulimit -v, cgroup memory.max) is reached; raise it, or use fewer ranks, workers "
                "and threads"));
  EXPECT_EQ(error_text(ValueError("relu: wrong")), "relu: wrong");
}

TEST(Error, ExposesRankPeerSeqAndStatus) {
  const CommError comm("gone", 2, 3, 1873);
  EXPECT_EQ(comm.rank(), 2);
  EXPECT_EQ(comm.peer(), 3);
  EXPECT_EQ(comm.seq(), 1873);
  const BackendError backend("cublasCreate", 7);
  EXPECT_STREQ(backend.what(), "cublasCreate failed with status 7");
  EXPECT_EQ(backend.call(), "cublasCreate");
  EXPECT_EQ(backend.status(), 7);
}

}}  // namespace tandem
