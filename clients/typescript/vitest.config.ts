import { defineConfig } from 'vitest/config'

export default defineConfig({
  // What waits for leases and servers has the time that it needs on a loaded machine.
  test: { include: ['test/*.test.ts'], globalSetup: 'test/setup.ts', testTimeout: 60_000, hookTimeout: 60_000 },
})
