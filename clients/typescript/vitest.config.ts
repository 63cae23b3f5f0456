import { defineConfig } from 'vitest/config'

export default defineConfig({
  // Tests that wait for leases and servers get enough time on a loaded machine.
  test: { include: ['test/*.test.ts'], globalSetup: 'test/setup.ts', testTimeout: 60_000, hookTimeout: 60_000 },
})
