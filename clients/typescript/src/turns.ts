// Which group the next claim is from.
import type { Queue, Shares } from './job.js'

const groupsAtOnce = 16 // how many groups one search asks for, and so the most claims between two

/**
 * Turns says which group the next claim is from. With several groups it is a deficit round robin over those that have jobs: in each round a group
 * gets as many as its weight says, in one claim or in several.
 */
export class Turns {
  readonly groups: readonly string[] // [] is all
  last: string // the group that has its turn
  looked = 0 // how many milliseconds the last search took
  #ready: [group: string, left: number][] = [] // those that have not had their turn, and how many jobs each may still get
  #unit = 1 // jobs for a weight of 1 in this round: 1, or more if all weigh the same
  #brought = false // whether there were jobs since the last search
  #more = false // whether there may be others

  constructor({ groupKey = '', groups, allGroups }: { groupKey?: string, groups?: readonly string[], allGroups?: boolean }) {
    this.groups = allGroups ? [] : groups?.length ? [...new Set(groups)].sort() : [groupKey]
    this.last = this.groups.length === 1 ? this.groups[0]! : ''
  }

  /**
   * Returns the group whose turn it is, with how many of n jobs to claim from it. With several those behind it, too, if n is enough for more.
   * Empty if no group has jobs.
   */
  async next(queue: Queue, n: number, several: boolean): Promise<Shares> {
    if (this.groups.length === 1) return new Map([[this.last, n]])
    if (!this.#ready.length) {
      const start = performance.now()
      const found = await queue.readyGroups(this.groups.length ? this.groups : undefined, this.last, groupsAtOnce)
      const weights = new Map<string, number>()
      for (const group of found) weights.set(group, (weights.get(group) ?? 0) + 1)
      this.#unit = 1 // small rounds: jobs claimed ahead would be out of proportion
      if (weights.size && weights.size === found.length) this.#unit = several ? Math.max(Math.floor(n / weights.size), 1) : Math.ceil(n / weights.size)
      this.#ready = [...weights].map(([group, weight]) => [group, weight * this.#unit])
      this.looked = performance.now() - start
      this.#brought = false
      this.#more = weights.size === groupsAtOnce
    }
    const shares = new Map<string, number>()
    for (const [group, left] of this.#ready) {
      if (n <= 0 || shares.size && !several) break
      shares.set(group, Math.min(n, left))
      this.last = group
      n -= left
    }
    return shares
  }

  /** Notes how many jobs a claim has brought, and returns whether another claim is worthwhile at once. Of several groups, each has had its turn. */
  took(jobs: number, shares: Shares): boolean {
    const asked = [...shares.values()].reduce((sum, n) => sum + n, 0), several = shares.size > 1
    const all = jobs === asked && asked > 0
    if (this.groups.length === 1) return all
    this.#brought ||= jobs > 0
    this.#more ||= several || all
    if (this.#ready.length) for (const [group, n] of shares) {
      const left = this.#ready.shift()![1] - (several ? n : jobs)
      // A claim passes over jobs that others are claiming, and leaves more.
      if (left > 0 && (several || jobs > 0 && (all || this.#unit === 1))) this.#ready.unshift([group, left])
    }
    return this.#ready.length > 0 || this.#more && this.#brought
  }
}
